"""What k8s/monitoring watches is there: metrics, labels, jobs, and a section for each alert."""

import re
from typing import NamedTuple

import pytest
import yaml

from services.admission.settings import AdmissionSettings
from shared.runtime.settings import load
from shared.serving.certificates import RENEW_AFTER
from tests.support.manifests import BASE, ROOT, build, named
from tools import write_dashboards, write_monitoring
from tools.monitors_check import live, site
from tools.monitors_check.faults import FAULTS
from tools.monitors_check.histories import HISTORIES
from tools.write_tables import METRICS_PAGE, Metric, metrics

MONITORING = ROOT / "k8s" / "monitoring"
OBJECTS = build(MONITORING)
(ENDPOINT,) = named(OBJECTS, "ServiceMonitor", "pumice")["spec"]["endpoints"]
ALERTS: list[dict] = [
    rule
    for group in named(OBJECTS, "PrometheusRule", "pumice")["spec"]["groups"]
    for rule in group["rules"]
]
SERVICES = {
    o["metadata"]["name"]: o["spec"]["template"]["metadata"]["labels"]
    for o in build(BASE)
    if o["kind"] == "Deployment"
}
ENDS = {"histogram": ("_bucket", "_sum", "_count")}
SERIES: dict[str, Metric] = {
    metric.name + end: metric for metric in metrics() for end in ENDS.get(metric.kind, ("",))
}
"""Names as Prometheus stores them."""
OF_PROMETHEUS = {"up": ("job",)}
OF_A_TARGET = {"job", "pod", "le"}
"""Labels that every series of ours has by its target, and the buckets of a histogram."""
MINUTES = {"s": 1 / 60, "m": 1, "h": 60}

each_alert = pytest.mark.parametrize("alert", ALERTS, ids=[rule["alert"] for rule in ALERTS])


class Selector(NamedTuple):
    """One choice of series in an expression."""

    function: str
    """The function that is called with it directly; "" without one."""
    name: str
    labels: tuple[str, ...]
    window: str


_SELECTOR = re.compile(
    r"(?:\b(?P<function>[a-z_]+)\()?\b(?P<name>up|(?:pumice|volcano)_\w+)\b"
    r"(?:\{(?P<matchers>[^}]*)\})?(?:\[(?P<window>\w+)\])?"
)
_GROUPING = re.compile(r"\b(?:by|on) \(([^)]*)\)")
_WORDS = {
    *("and", "or", "unless", "on", "by", "sum", "min", "time", "rate", "changes", "absent"),
    "histogram_quantile",
}


def selectors(expression: str) -> list[Selector]:
    """Return every choice of series in an expression."""
    return [
        Selector(
            match["function"] or "",
            match["name"],
            tuple(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", match["matchers"] or "")),
            match["window"] or "",
        )
        for match in _SELECTOR.finditer(expression)
    ]


def grouped_by(expression: str) -> set[str]:
    """Return the labels that an expression groups or matches by."""
    return {
        label.strip() for labels in _GROUPING.findall(expression) for label in labels.split(",")
    }


def minutes(duration: str) -> float:
    """Return a duration of one unit in minutes."""
    return int(duration[:-1]) * MINUTES[duration[-1]]


@each_alert
def test_the_reading_of_an_expression_leaves_no_word_out(alert: dict) -> None:
    """Otherwise a metric with a slip in its name would be passed over."""
    rest = _GROUPING.sub("", _SELECTOR.sub(lambda m: f"{m['function'] or ''}(", alert["expr"]))
    assert set(re.findall(r"[a-z_]\w*", rest)) <= _WORDS


@each_alert
def test_every_series_of_an_alert_is_one_that_a_service_shows(alert: dict) -> None:
    chosen = selectors(alert["expr"])
    assert chosen
    for selector in chosen:
        assert selector.name in {*SERIES, *OF_PROMETHEUS}
        if selector.name in SERIES:
            assert set(selector.labels) <= set(SERIES[selector.name].labels)


@each_alert
def test_an_alert_groups_by_labels_that_its_series_have(alert: dict) -> None:
    ours = [SERIES[s.name] for s in selectors(alert["expr"]) if s.name in SERIES]
    known = OF_A_TARGET.union(*(metric.labels for metric in ours))
    told = re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"])
    assert grouped_by(alert["expr"]) <= known
    assert set(told) <= grouped_by(alert["expr"]) | (
        {"job"} if "absent" in alert["expr"] else set()
    )


@each_alert
def test_counters_are_asked_for_their_rate_and_gauges_are_not(alert: dict) -> None:
    for selector in selectors(alert["expr"]):
        if selector.name not in SERIES:
            continue
        counts = SERIES[selector.name].kind in {"counter", "histogram"}
        assert (selector.function == "rate") is counts
        assert bool(selector.window) is (selector.function in {"rate", "changes"})


@each_alert
def test_a_window_holds_several_scrapes(alert: dict) -> None:
    for selector in selectors(alert["expr"]):
        if selector.window:
            assert minutes(selector.window) >= 4 * minutes(ENDPOINT["interval"])


@each_alert
def test_an_alert_says_how_bad_it_is_and_where_to_read_on(alert: dict) -> None:
    assert alert["labels"] == {"severity": alert["labels"]["severity"]}
    assert alert["labels"]["severity"] in {"warning", "critical"}
    assert alert["annotations"].keys() == {"summary", "runbook"}
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert ROOT / page == METRICS_PAGE
    assert anchor == alert["alert"].lower()


def test_each_alert_has_its_section_and_each_section_its_alert() -> None:
    page = METRICS_PAGE.read_text("utf-8")
    sections = re.findall(r"^### (Pumice\w+)$", page, re.MULTILINE)
    assert sections == [alert["alert"] for alert in ALERTS]


def test_what_a_section_tells_to_look_at_is_there() -> None:
    told = METRICS_PAGE.read_text("utf-8").partition("\n## Alerts\n")[2]
    assert told
    assert set(re.findall(r"`((?:pumice|volcano)_\w+)`", told)) <= {m.name for m in metrics()}


def test_a_service_that_is_down_is_missed_by_its_name() -> None:
    down = ALERTS[0]["expr"]
    assert set(re.findall(r'absent\(up\{job="([\w-]+)"\}\)', down)) == SERVICES.keys()
    (names,) = re.findall(r'job=~"pumice-\((.*)\)"', down)
    assert {f"pumice-{name}" for name in names.split("|")} == SERVICES.keys()


def test_the_monitor_finds_the_service_of_the_metrics_and_no_other() -> None:
    wanted = named(OBJECTS, "ServiceMonitor", "pumice")["spec"]["selector"]["matchLabels"]
    (found,) = [
        o
        for o in build(BASE)
        if o["kind"] == "Service" and wanted.items() <= o["metadata"]["labels"].items()
    ]
    assert ENDPOINT["port"] in {port["name"] for port in found["spec"]["ports"]}
    for name, labels in SERVICES.items():
        assert found["spec"]["selector"].items() <= labels.items(), name


def test_a_target_bears_the_name_of_its_service_as_job() -> None:
    (relabeling,) = ENDPOINT["relabelings"]
    assert relabeling["targetLabel"] == "job"
    assert relabeling["sourceLabels"] == ["__meta_kubernetes_pod_label_app_kubernetes_io_name"]
    for name, labels in SERVICES.items():
        match = re.fullmatch(relabeling["regex"], labels["app.kubernetes.io/name"])
        assert match is not None
        assert relabeling["replacement"].replace("$1", match[1]) == name


@pytest.mark.parametrize("expression", write_dashboards.expressions())
def test_a_panel_shows_series_that_a_service_has_by_labels_that_they_have(expression: str) -> None:
    rest = _GROUPING.sub("", _SELECTOR.sub(lambda m: f"{m['function'] or ''}(", expression))
    assert set(re.findall(r"[a-z_]\w*", rest)) <= _WORDS | {"max"}
    chosen = selectors(expression)
    assert chosen
    known = set(OF_A_TARGET)
    for selector in chosen:
        shown = [metric for name, metric in SERIES.items() if _is_called(selector.name, name)]
        assert shown, selector.name
        known.update(*(metric.labels for metric in shown))
        assert (selector.function == "rate") is (shown[0].kind in {"counter", "histogram"})
    assert grouped_by(expression) <= known


def _is_called(name: str, pattern: str) -> bool:
    return re.fullmatch(re.sub(r"<\w+>", r"[a-z_]+", pattern), name) is not None


def test_the_dashboards_are_those_of_the_table() -> None:
    assert write_dashboards.FILE.read_text("utf-8") == write_dashboards.manifests(), "make crds"


def test_no_two_panels_of_a_dashboard_lie_upon_each_other() -> None:
    for name, (title, rows) in write_dashboards.DASHBOARDS.items():
        places = [p["gridPos"] for p in write_dashboards.dashboard(name, title, rows)["panels"]]
        cells = [
            (x, y)
            for place in places
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        assert len(cells) == len(set(cells))


def test_no_certificate_is_said_to_expire_before_its_renewal_is_late() -> None:
    (expires,) = (a for a in ALERTS if a["alert"] == "PumiceAdmissionCertificateExpires")
    (days,) = re.findall(r"< (\d+) \* 86400", expires["expr"])
    settings = load(AdmissionSettings, service="admission", argv=[], environ={})
    left_at_renewal_s = settings.certificate_life * (1 - RENEW_AFTER)
    assert 2 * int(days) * 86400 <= left_at_renewal_s


def test_slow_reviews_are_told_before_the_api_server_stops_waiting() -> None:
    (slow,) = (a for a in ALERTS if a["alert"] == "PumiceAdmissionSlow")
    (limit_s,) = re.findall(r"> (\d+)$", slow["expr"])
    settings = load(AdmissionSettings, service="admission", argv=[], environ={})
    assert int(limit_s) < settings.webhook_timeout


def test_every_file_of_the_folder_is_part_of_the_build() -> None:
    listed = yaml.safe_load((MONITORING / "kustomization.yaml").read_text())["resources"]
    files = {path.name for path in MONITORING.iterdir()}
    assert files == {*listed, "kustomization.yaml", write_monitoring.FOLDER.name}


def test_the_files_for_a_prometheus_without_the_operator_say_the_same() -> None:
    """The rules and dashboards of the operator's objects, and nothing else lies there."""
    folder = write_monitoring.FOLDER
    written = {
        str(path.relative_to(folder)): path.read_text("utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert written == write_monitoring.files(), "make crds"
    plain = yaml.safe_load(written["alerts.yml"])
    assert plain == named(OBJECTS, "PrometheusRule", "pumice")["spec"]
    for name in write_dashboards.DASHBOARDS:
        config_map = named(OBJECTS, "ConfigMap", f"{name}-dashboard")
        assert config_map["data"] == {f"{name}.json": written[f"grafana/dashboards/{name}.json"]}
    assert yaml.safe_load(written["prometheus.yml"])["rule_files"] == ["alerts.yml"]
    assert (
        yaml.safe_load(written["prometheus.yml"])["global"]["scrape_interval"]
        == (ENDPOINT["interval"])
    )


@each_alert
def test_each_alert_has_a_history_in_which_it_fires_and_one_in_which_it_does_not(
    alert: dict,
) -> None:
    """`make monitors-check` has promtool try them."""
    histories = [history for history in HISTORIES if history.alert == alert["alert"]]
    assert {bool(history.fires) for history in histories} == {True, False}


def test_the_histories_show_what_services_can_show() -> None:
    """Otherwise promtool would only confirm a slip of the rules."""
    shown = [each for history in HISTORIES for key in history.series for each in selectors(key)]
    assert len(shown) == sum(len(history.series) for history in HISTORIES)
    for series in shown:
        own = set(series.labels) - OF_A_TARGET
        assert series.name == "up" or own <= set(SERIES[series.name].labels), series


def test_each_alert_has_a_fault_that_is_done_to_a_real_cluster() -> None:
    """`make monitors-check` does them."""
    raised = [fault for fault in FAULTS if fault.alert]
    assert {fault.alert for fault in raised} == {alert["alert"] for alert in ALERTS}
    for fault in raised:
        (alert,) = (each for each in ALERTS if each["alert"] == fault.alert)
        for labels in fault.labels:
            assert labels.keys() <= grouped_by(alert["expr"]) | {"job"}


def test_the_series_that_need_a_fault_are_some_of_those_that_are_shown() -> None:
    assert live.series() > live.NEED_A_FAULT
    assert {name for name in live.series() if not _is_shown(name)} == set()


def _is_shown(name: str) -> bool:
    return any(_is_called(name, pattern) for pattern in SERIES)


@each_alert
def test_a_rule_with_shorter_times_holds_as_many_samples(alert: dict) -> None:
    assert minutes(ENDPOINT["interval"]) * 60 == site.FACTOR * site.INTERVAL_S
    shorter = site.shorter(alert["expr"])
    windows = [s.window for s in selectors(alert["expr"]) if s.window]
    assert [minutes(s.window) * site.FACTOR for s in selectors(shorter) if s.window] == (
        pytest.approx([minutes(window) for window in windows])
    )
    assert _names(shorter) == _names(alert["expr"])


def _names(expression: str) -> list[str]:
    return [selector.name for selector in selectors(expression)]

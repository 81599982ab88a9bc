"""Writes the Helm chart `k8s/chart` from `k8s/base` (`make crds`).

Each file of the base that its kustomization lists becomes a template of the same name: the text as
it stands, with expressions at the places that values change. A place that is not found, or more
often than it should be, ends the run: a chart that is silently without a value cannot come out.
The default values are read from the base as well, so that a chart without values of its own
installs the base. The namespace is Helm's, and the CRDs are in Helm's own folder for them. One
value adds what the overlay `agent-scheduler` adds, from the files of that overlay.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import yaml

from tools.write_manifests import AGENT_FILE, CRD_FOLDER, NAMESPACE, agent_scheduler

_ROOT: Final = Path(__file__).parents[1]
BASE: Final = _ROOT / "k8s" / "base"
CHART: Final = _ROOT / "k8s" / "chart"
SOURCES: Final = Path(__file__).with_name("chart")
"""Files of the chart that the base has nothing of: they are copied, values.yaml is filled in."""
SERVICES: Final = (
    "admission",
    "binder",
    "cache",
    "controller",
    "declarer",
    "scheduler",
    "visibility",
)
"""Services of the base, each with a file of its own."""
AGENT: Final = "agent_scheduler"
"""The scheduler for single pods, as the names of its values begin."""
SECRETS: Final = {
    "pumice-nats-binder": "nats_binder",
    "pumice-nats-cache": "nats_cache",
    "pumice-nats-controller": "nats_controller",
    "pumice-nats-declarer": "nats_declarer",
    "pumice-nats-events": "nats_events",
    "pumice-nats-scheduler": "nats_scheduler",
    "pumice-nats-tls": "nats_tls",
    "pumice-nats-visibility": "nats_visibility",
    "pumice-state-key": "state_key",
}
"""Secrets that the pods mount, and the values below `secrets` that name them."""
FLAGS: Final = {
    AGENT: {
        "feature-gates": "scheduler_feature_gates",
        "scheduler-sharding-mode": "agent_scheduler_sharding_mode",
    },
    "admission": {
        "enabled-admission": "enabled_admissions",
        "feature-gates": "admission_feature_gates",
        "scheduler-name": "scheduler_name",
    },
    "binder": {"scheduler-name": "scheduler_name"},
    "cache": {"leader-elect": "leader_elect_enable", "scheduler-name": "scheduler_name"},
    "controller": {
        "controllers": "controller_enabled_controllers",
        "kube-api-burst": "controller_kube_api_burst",
        "kube-api-qps": "controller_kube_api_qps",
        "scheduler-name": "scheduler_name",
        "worker-threads": "controller_worker_threads",
        "worker-threads-for-podgroup": "controller_worker_threads_for_podgroup",
    },
    "declarer": {},
    "scheduler": {
        "feature-gates": "scheduler_feature_gates",
        "schedule-period": "scheduler_schedule_period",
        "scheduler-name": "scheduler_name",
        "scheduler-sharding-mode": "scheduler_sharding_mode",
    },
    "visibility": {},
}
"""Flags of a service that are given when the value below `custom` is."""
ONLY_IF: Final = {
    "rbac/admission.yaml": {"*": "admission_enable"},
    "services/admission.yaml": {"*": "admission_enable"},
    "services/agent-scheduler.yaml": {"*": "agent_scheduler_enable"},
    "api-service.yaml": {"*": "visibility_enable"},
    "rbac/visibility.yaml": {"*": "visibility_enable"},
    "services/visibility.yaml": {"*": "visibility_enable"},
    "metrics-service.yaml": {"*": "metrics_enable"},
    "network-policies.yaml": {
        "pumice-admission-from-api-server": "admission_enable",
        "pumice-metrics-from-cluster": "metrics_enable",
        "pumice-visibility-from-api-server": "visibility_enable",
    },
}
"""Values below `custom` without which an object (`*`: each of a file) is left out."""
_SPLIT: Final = "---\n"


class AbsentError(Exception):
    """A place in the base is not as this module knows it."""


def templates() -> dict[str, str]:
    """Return the text of every template by its name: of the base, and of the single pods."""
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    apart = {"../crds", "namespace.yaml"}
    texts = {name: _read(name) for name in listed if name not in apart}
    texts["services/agent-scheduler.yaml"] = agent_scheduler()
    return {name: template(name, text) for name, text in texts.items()}


def _read(name: str) -> str:
    """Return a file of the base, and above it the line that says of which it is made."""
    head = f"# Made by `make crds` from k8s/base/{name}: change that, not this file.\n"
    return head + (BASE / name).read_text()


def files() -> dict[str, str]:
    """Return the text of every file of the chart by its path below it."""
    own = {path.name: path.read_text() for path in sorted(SOURCES.iterdir())}
    helpers = own.pop("_helpers.tpl")
    crds = {
        f"crds/{path.name}": path.read_text()
        for path in sorted(CRD_FOLDER.glob("*.yaml"))
        if path.name != "kustomization.yaml"
    }
    made = {f"templates/{name}": text for name, text in templates().items()}
    own["Chart.yaml"] = own["Chart.yaml"].replace("$VERSION", version())
    return {**own, "values.yaml": values(), "templates/_helpers.tpl": helpers, **crds, **made}


def version() -> str:
    """Return the version of Pumice, which is the tag of its image in the base."""
    return _image(_pod("services/scheduler.yaml"))[1]


def template(name: str, text: str) -> str:
    """Return a file, whose first line says of which it is made, as a template."""
    head, _, text = text.partition("\n")
    folder, _, file = name.rpartition("/")
    service = file.removesuffix(".yaml").replace("-", "_")
    if folder == "services":
        text = _service(service, text)
    elif file == "statefulset.yaml":
        text = _nats(text)
    elif file == "settings.yaml":
        text = replaced(text, "LOG_LEVEL: info", "LOG_LEVEL: {{ .Values.custom.log_level }}")
    elif file == "scheduler-config.yaml":
        text = _scheduler_config(text)
    documents = [_document(name, document) for document in text.split(_SPLIT)]
    return f"{head}\n{_SPLIT.join(documents)}"


def _document(name: str, text: str) -> str:
    """Return one object of a file with its namespace, and with its condition if it has one."""
    place = re.compile(rf"^(?!#)(.*){NAMESPACE}", re.MULTILINE)
    text = place.sub(r"\1{{ .Release.Namespace }}", text)
    conditions = ONLY_IF.get(name, {})
    own = re.search(r"^  name: (\S+)$", text, re.MULTILINE)
    if own is None:
        raise AbsentError(f"{name}: an object without a name")
    value = conditions.get("*") or conditions.get(own[1])
    return _if(f".Values.custom.{value}", text) if value else text


def _if(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"


def replaced(text: str, old: str, new: str, *, count: int = 1) -> str:
    """Return a text with what stands there so many times replaced."""
    if text.count(old) != count:
        raise AbsentError(f"{old!r} is there {text.count(old)} times, not {count}")
    return text.replace(old, new)


def _service(service: str, text: str) -> str:
    text = replaced(
        text, "  replicas: 2\n", f"  replicas: {{{{ .Values.custom.{service}_replicas }}}}\n"
    )
    text = _flags(service, _pod_of(service, text, image="pumice.image"))
    deployment, budget, *others = text.split(_SPLIT)
    budget = _if(f"gt (int .Values.custom.{service}_replicas) 1", budget)
    return _SPLIT.join((deployment, budget, *others))


def _flags(service: str, text: str) -> str:
    """Return a Deployment whose service is given the flags that have a value."""
    for_single_pods = _of_single_pods().get(service, {})
    given = "".join(
        _flag(flag, f".Values.custom.{value}", for_single_pods.get(flag, ""))
        for flag, value in FLAGS[service].items()
    )
    after = "          env:\n"
    return replaced(text, after, given + after) if given else text


def _flag(name: str, value: str, for_single_pods: str) -> str:
    """Return the lines of a flag; where single pods are scheduled, it has a value more."""
    conditions = [(f'not (kindIs "invalid" {value})', value)]
    if for_single_pods:
        default, _, more = for_single_pods.rpartition(",")
        both = f'(printf "%v,{more}" ({value} | default "{default}"))'
        conditions.insert(0, (f".Values.custom.{AGENT}_enable", both))
    choices = (
        f'if {condition} }}}}\n            - {{{{ include "pumice.flag" (list "{name}" {given})'
        " | quote }}\n            {{- "
        for condition, given in conditions
    )
    return f"            {{{{- {'else '.join(choices)}end }}}}\n"


def _of_single_pods() -> dict[str, dict[str, str]]:
    """Return, by service, the flags that the overlay for single pods adds, with their values."""
    overlay = yaml.safe_load((AGENT_FILE.parent / "kustomization.yaml").read_text())
    added: dict[str, dict[str, str]] = {}
    for patch in overlay["patches"]:
        service = patch["target"]["name"].removeprefix("pumice-")
        flags = (operation["value"] for operation in yaml.safe_load(patch["patch"]))
        added[service] = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
        if not added[service].keys() <= FLAGS[service].keys():
            raise AbsentError(f"{service}: no value for {added[service]}")
    return added


def _pod_of(name: str, text: str, *, image: str) -> str:
    """Return a workload with the values that all pods have: image, place, room, Secrets."""
    place = f'{{{{- include "pumice.place" (dict "Values" .Values "name" "{name}") | nindent 6 }}}}'
    line = "      enableServiceLinks: false\n"
    text = replaced(text, line, f"{line}      {place}\n")
    text = _once(
        r"^          image: .*\n",
        lambda _: (
            f'          image: {{{{ include "{image}" . | quote }}}}\n'
            "          {{- with .Values.basic.image_pull_policy }}\n"
            "          imagePullPolicy: {{ . }}\n          {{- end }}\n"
        ),
        text,
    )
    room = f"{{{{- toYaml .Values.custom.{name}_resources | nindent 12 }}}}"
    text = _once(
        r"^          resources:\n(?:            .*\n)+",
        lambda _: f"          resources:\n            {room}\n",
        text,
    )
    return re.sub(
        r"^(.*- secret:\n *name|.*secretName|.*secretKeyRef:\n *name): (\S+)$",
        lambda found: f"{found[1]}: {{{{ .Values.secrets.{SECRETS[found[2]]} }}}}",
        text,
        flags=re.MULTILINE,
    )


def _once(pattern: str, new: Callable[[re.Match[str]], str], text: str) -> str:
    text, count = re.subn(pattern, new, text, flags=re.MULTILINE)
    if count != 1:
        raise AbsentError(f"{pattern!r} is there {count} times, not once")
    return text


def _nats(text: str) -> str:
    text = _pod_of("nats", text, image="pumice.nats-image")
    claim = (
        "        {{- with .Values.custom.nats_storage_class }}\n"
        "        storageClassName: {{ . }}\n        {{- end }}\n"
    )
    modes = '        accessModes: ["ReadWriteOnce"]\n'
    text = replaced(text, modes, modes + claim)
    size = "{{ .Values.custom.nats_storage }}"
    return _once(r"^            storage: .*$", lambda _: f"            storage: {size}", text)


def _scheduler_config(text: str) -> str:
    """Return the ConfigMap with the base's configuration unless a value has another."""
    head, line, configuration = text.partition("  volcano-scheduler.conf: |\n")
    if not line:
        raise AbsentError("the scheduler's configuration")
    given = "{{- with .Values.custom.scheduler_config_override }}\n    {{- . | nindent 4 }}\n"
    return f"{head}{line}    {given}    {{{{- else }}}}\n{configuration}    {{{{- end }}}}\n"


def _objects(name: str) -> list[dict[str, object]]:
    return list(yaml.safe_load_all((BASE / name).read_text()))


def _pod(name: str) -> dict[str, object]:
    (workload,) = (o for o in _objects(name) if o["kind"] in {"Deployment", "StatefulSet"})
    container: dict[str, object] = workload["spec"]["template"]["spec"]["containers"][0]  # type: ignore[index]
    return container


def _image(container: dict[str, object]) -> tuple[str, str]:
    name, _, tag = str(container["image"]).rpartition(":")
    return name, tag


def values() -> str:
    """Return the text of values.yaml: the draft with what the base has."""
    name, tag = _image(_pod("services/scheduler.yaml"))
    server, server_tag = _image(_pod("nats/statefulset.yaml"))
    registry, _, server_name = server.partition("/")
    given = {
        "IMAGE_NAME": name,
        "IMAGE_TAG": tag,
        "NATS_REGISTRY": registry,
        "NATS_NAME": server_name,
        "NATS_TAG": server_tag,
        "RESOURCES": "".join(
            _resources(service, f"services/{service}.yaml") for service in SERVICES
        )
        + _resources(AGENT, "services/scheduler.yaml")
        + _resources("nats", "nats/statefulset.yaml"),
        "SECRETS": "".join(f"  {value}: {secret}\n" for secret, value in SECRETS.items()),
    }
    text = (SOURCES / "values.yaml").read_text()
    for word, value in given.items():
        text = replaced(text, f"${word}\n", value if value.endswith("\n") else f"{value}\n")
    return text


def _resources(name: str, file: str) -> str:
    text = yaml.safe_dump({f"{name}_resources": _pod(file)["resources"]}, sort_keys=False)
    return "".join(f"  {line}\n" for line in text.splitlines())


def main() -> None:
    """Write the chart; remove files that nothing makes any more."""
    made = files()
    for path in sorted(CHART.rglob("*")):
        if path.is_file() and path.relative_to(CHART).as_posix() not in made:
            path.unlink()
    for name, text in made.items():
        path = CHART / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

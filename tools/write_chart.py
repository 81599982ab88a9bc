"""Writes the Helm chart `k8s/chart` from `k8s/base` (`make crds`).

Each file of the base that its kustomization lists becomes a template of the same name: the text as
it stands, with expressions at the places that values change. A place that is not found, or more
often than it should be, ends the run: a chart that is silently without a value cannot come out.
The default values are read from the base as well, so that a chart without values of its own
installs the base. The namespace is Helm's, and the CRDs are in Helm's own folder for them. Two
values add what the overlays `agent-scheduler` and `workload-groups` add, from their files; another
one, `second_scheduler`, makes the installation of a scheduler that shares the cluster with a first.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import yaml

from tools.write_manifests import AGENT_FILE, CRD_FOLDER, NAMESPACE, agent_scheduler

_ROOT: Final = Path(__file__).parents[1]
BASE: Final = _ROOT / "k8s" / "base"
WORKLOAD_GROUPS: Final = _ROOT / "k8s" / "overlays" / "workload-groups"
ACCOUNTING: Final = _ROOT / "k8s" / "overlays" / "accounting"
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
_USERS: Final = ("accounting", *SERVICES[1:5], "events", "scheduler", "tls", "visibility")
SECRETS: Final = {f"pumice-nats-{user}": f"nats_{user}" for user in _USERS}
SECRETS["pumice-state-key"] = "state_key"
"""Secrets that the pods mount, and the values below `secrets` that name them."""
FLAGS: Final = {
    AGENT: {
        "enable-metrics": "scheduler_metrics_enable",
        "enable-pprof": "scheduler_pprof_enable",
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
        "enable-metrics": "controller_metrics_enable",
        "kube-api-burst": "controller_kube_api_burst",
        "kube-api-qps": "controller_kube_api_qps",
        "scheduler-name": "scheduler_name",
        "worker-threads": "controller_worker_threads",
        "worker-threads-for-gc": "controller_worker_threads_for_gc",
        "worker-threads-for-podgroup": "controller_worker_threads_for_podgroup",
        "workload-groups-config-map": "workload_groups_config_map",
    },
    "declarer": {},
    "scheduler": {
        "enable-metrics": "scheduler_metrics_enable",
        "enable-pprof": "scheduler_pprof_enable",
        "feature-gates": "scheduler_feature_gates",
        "ignored-provisioners": "ignored_provisioners",
        "kube-api-burst": "scheduler_kube_api_burst",
        "kube-api-qps": "scheduler_kube_api_qps",
        "node-worker-threads": "scheduler_node_worker_threads",
        "percentage-nodes-to-find": "scheduler_percentage_nodes_to_find",
        "schedule-period": "scheduler_schedule_period",
        "scheduler-name": "scheduler_name",
        "scheduler-sharding-mode": "scheduler_sharding_mode",
        "scheduler-sharding-name": "scheduler_sharding_name",
    },
    "visibility": {},
}
"""Flags of a service that are given when the value below `custom` is."""
SECOND: Final = "second_scheduler"
"""The value that makes the chart the installation of a second scheduler, of that name."""
OF_SECOND: Final = {
    "cache": {
        "leader-elect-resource-name": "%s",
        "leader-elect-controller-resource-name": "%s-controller",
    },
    "scheduler": {"scheduler-sharding-mode": "hard", "scheduler-sharding-name": "%s"},
}
"""Flags that a second installation has, with `%s` for its scheduler, unless a value says else."""
WITH_OTHERS: Final = ("admission", "cache", "controller")
"""Services of the first installation that serve the schedulers of others, too."""
OF_FIRST: Final = frozenset(
    {
        "api-service.yaml",
        "authority-secrets.yaml",
        "controller-secrets.yaml",
        "network-policies.yaml:pumice-admission-from-api-server",
        "network-policies.yaml:pumice-visibility-from-api-server",
        "queue-commands.yaml",
        "rbac/admission.yaml",
        "rbac/controller.yaml",
        "rbac/users.yaml",
        "rbac/visibility-users.yaml",
        "rbac/visibility.yaml",
        "rbac/workload-groups.yaml",
        "services/admission.yaml",
        "services/controller.yaml",
        "services/visibility.yaml",
        "user-annotations.yaml",
    }
)
"""Files, and `file:object`, of which a cluster has one for all installations."""
LEASES: Final = ("volcano", "vc-controller-manager")
"""Leases of the cache, as the base names them."""
ONLY_IF: Final = {
    "accounting.yaml": "accounting_enable",
    "rbac/admission.yaml": "admission_enable",
    "services/admission.yaml": "admission_enable",
    "services/agent-scheduler.yaml": "agent_scheduler_enable",
    "api-service.yaml": "visibility_enable",
    "rbac/visibility.yaml": "visibility_enable",
    "rbac/workload-groups.yaml": "workload_groups_config_map",
    "services/visibility.yaml": "visibility_enable",
    "metrics-service.yaml": "metrics_enable",
    "network-policies.yaml:pumice-admission-from-api-server": "admission_enable",
    "network-policies.yaml:pumice-metrics-from-cluster": "metrics_enable",
    "network-policies.yaml:pumice-visibility-from-api-server": "visibility_enable",
}
"""Values below `custom` without which a file, or `file:object`, is left out."""
_SPLIT: Final = "---\n"


class AbsentError(Exception):
    """A place in the base is not as this module knows it."""


def templates() -> dict[str, str]:
    """Return the text of every template by its name: of the base, and of the single pods."""
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    apart = {"../crds", "namespace.yaml"}
    texts = {name: _read(name) for name in listed if name not in apart}
    texts["services/agent-scheduler.yaml"] = agent_scheduler()
    texts["accounting.yaml"] = _read("accounting.yaml", folder=ACCOUNTING)
    texts["rbac/workload-groups.yaml"] = _read("role.yaml", folder=WORKLOAD_GROUPS)
    return {name: template(name, text) for name, text in texts.items()}


def _read(name: str, *, folder: Path = BASE) -> str:
    """Return a file of the base, and above it the line that says of which it is made."""
    path = folder / name
    source = path.relative_to(_ROOT).as_posix()
    return f"# Made by `make crds` from {source}: change that, not this file.\n{path.read_text()}"


def files() -> dict[str, str]:
    """Return the text of every file of the chart by its path below it."""
    own = {
        path.relative_to(SOURCES).as_posix(): path.read_text()
        for path in sorted(SOURCES.rglob("*"))
        if path.is_file()
    }
    crds = {
        f"crds/{path.name}": path.read_text()
        for path in sorted(CRD_FOLDER.glob("*.yaml"))
        if path.name != "kustomization.yaml"
    }
    made = {f"templates/{name}": text for name, text in templates().items()}
    own["Chart.yaml"] = own["Chart.yaml"].replace("$VERSION", version())
    own["values.yaml"] = values()
    refused = "templates/refusals.yaml"
    own[refused] = refusals(own[refused], own["values.yaml"])
    return {**own, **crds, **made}


def refusals(text: str, values: str) -> str:
    """Return the template that refuses values, with the names of those that there are."""
    for part, known in yaml.safe_load(values).items():
        text = replaced(text, f"${part.upper()}", " ".join(f'"{name}"' for name in known))
    return text


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
    elif file == "accounting.yaml":
        text = _pod_of("accounting", text, image="pumice.image")
    elif file == "settings.yaml":
        text = replaced(text, "LOG_LEVEL: info", "LOG_LEVEL: {{ .Values.custom.log_level }}")
    elif file == "scheduler-config.yaml":
        text = _scheduler_config(text)
    elif name in {"rbac/cache.yaml", "cache-leases.yaml"}:
        text = _leases_of_cache(text)
    elif name == "rbac/controller.yaml":
        text = _leases_of_others(text)
    documents = [_document(name, document) for document in text.split(_SPLIT)]
    return f"{head}\n{_SPLIT.join(documents)}"


def _document(name: str, text: str) -> str:
    """Return one object of a file with its namespace, and with its condition if it has one."""
    place = re.compile(rf"^(?!#)(.*){NAMESPACE}", re.MULTILINE)
    text = place.sub(r"\1{{ .Release.Namespace }}", text)
    own = re.search(r"^  name: (\S+)$", text, re.MULTILINE)
    if own is None:
        raise AbsentError(f"{name}: an object without a name")
    conditions = _conditions(name, own[1])
    if "\n  namespace: " not in text and SECOND not in conditions:
        text = _of_the_cluster(text)
    return _if(conditions, text) if conditions else text


def _conditions(name: str, own: str) -> str:
    """Return under which condition an object of a file is there; empty: always."""
    places = (name, f"{name}:{own}")
    found = [f".Values.custom.{ONLY_IF[place]}" for place in places if place in ONLY_IF]
    if not OF_FIRST.isdisjoint(places):
        found.append(f"not .Values.custom.{SECOND}")
    return " ".join(("and", *(f"({each})" for each in found))) if found[1:] else "".join(found)


def _of_the_cluster(text: str) -> str:
    """Return an object without a namespace, whose name a second installation adds its own to."""
    places = re.compile(r"^(  name|  policyName): (pumice-\S+)$", re.MULTILINE)
    return places.sub(r'\1: \2{{ include "pumice.suffix" . }}', text)


def _leases_of_cache(text: str) -> str:
    """Return the rights to the cache's Leases, which bear other names in a second installation."""
    mark = "'" if f"'{LEASES[0]}'" in text else '"'
    named = (f"{mark}{lease}{mark}" for lease in LEASES)
    given = (f'{mark}{{{{ include "pumice.{of}-lease" . }}}}{mark}' for of in ("own", "controller"))
    return replaced(text, ", ".join(named), ", ".join(given))


def _leases_of_others(text: str) -> str:
    """Return the controller's role with the Leases of the schedulers that values name."""
    names = f'{LEASES[0]}", "second'
    others = '(.Values.custom.other_schedulers | default (list "second"))'
    given = f'{{{{ prepend {others} "{LEASES[0]}" | toJson }}}}'
    return replaced(text, f'["{names}"]', given)


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
    of_second = OF_SECOND.get(service, {})
    values = FLAGS[service]
    given = "".join(
        _scheduler_names(service)
        if flag == "scheduler-name"
        else _flag(flag, values.get(flag, ""), of_second.get(flag, ""))
        for flag in sorted(values.keys() | of_second.keys())
    )
    after = "          env:\n"
    return replaced(text, after, given + after) if given else text


def _scheduler_names(service: str) -> str:
    """Return the lines of the flag with all schedulers that a service serves."""
    single = _of_single_pods().get(service, {}).get("scheduler-name", "").split(",")[1:]
    added = "".join(f' "{name}"' for name in single)
    others = "true" if service in WITH_OTHERS else "false"
    return (
        '            {{- with include "pumice.schedulers" (dict "custom" .Values.custom'
        f' "single" (list{added}) "others" {others}) }}}}\n'
        '            - {{ printf "--scheduler-name=%s" . | quote }}\n            {{- end }}\n'
    )


def _flag(name: str, value: str, of_second: str) -> str:
    """Return the lines of a flag: with a value, and else with that of a second installation."""
    conditions = []
    if value:
        place = f".Values.custom.{value}"
        conditions.append((f'not (kindIs "invalid" {place})', place))
    if of_second:
        second = f".Values.custom.{SECOND}"
        printed = f'(printf "{of_second}" {second})' if "%s" in of_second else f'"{of_second}"'
        conditions.append((second, printed))
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


def _pod(name: str) -> dict[str, object]:
    objects = yaml.safe_load_all((BASE / name).read_text())
    (workload,) = (o for o in objects if o["kind"] in {"Deployment", "StatefulSet"})
    container: dict[str, object] = workload["spec"]["template"]["spec"]["containers"][0]
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
        "RESOURCES": _resources("accounting", "../overlays/accounting/accounting.yaml")
        + "".join(_resources(each, f"services/{each}.yaml") for each in SERVICES)
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

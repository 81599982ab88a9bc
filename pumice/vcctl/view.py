"""The page of `vcctl job view`: a job's fields in Volcano's layout, with its events. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pumice.vcctl.documents import escaped
from pumice.vcctl.tables import event_age, stamp
from shared.model.quantity import canonical

Object = Mapping[str, Any]

_NONE: Final = "<none>"
_EVENT_WIDTHS: Final = (15, 40, 30, 40)
_COUNTS: Final = (
    ("Succeeded:    ", "succeeded"),
    ("Pending:      ", "pending"),
    ("Running:      ", "running"),
    ("Failed:       ", "failed"),
    ("Terminating:  ", "terminating"),
    ("Unknown:      ", "unknown"),
    ("RetryCount:   ", "retryCount"),
    ("Min Available:", "minAvailable"),
    ("Version:      ", "version"),
)
_POD_ANNOTATIONS: Final = (
    ("Cri . Cci . Io / Container - Type:          ", "cri.cci.io/container-type"),
    ("Kubernetes . Io / Availablezone:            ", "kubernetes.io/availablezone"),
    ("Network . Alpha . Kubernetes . Io / Network:", "network.alpha.kubernetes.io/network"),
)
"""⚠ Three annotations of one provider are shown for each task, and no others."""


def described(
    job: Object, events: Sequence[Object], now_s: float, *, conditions: bool = True
) -> str:
    """Return the page."""
    status = job.get("status") or {}
    lines = [*_head(job), *_spec(job.get("spec") or {}), *_status(status)]
    if conditions:
        lines += _conditions(status.get("conditions") or ())
    return "\n".join([*lines, *_events(events, now_s)]) + "\n"


def _head(job: Object) -> Iterator[str]:
    metadata = job["metadata"]
    yield f"Name:       \t{metadata.get('name', '')}"
    yield f"Namespace:  \t{metadata.get('namespace', '')}"
    yield f"Labels:     \t{_pairs(metadata.get('labels'))}"
    yield f"Annotations:\t{_pairs(metadata.get('annotations'))}"
    yield "API Version:\t"  # ⚠ both stay empty: Go's client strips them from what it reads
    yield "Kind:       \t"
    yield "Metadata:"
    yield f"  Creation Timestamp:\t{stamp(metadata.get('creationTimestamp') or '')}"
    yield f"  Generate Name:     \t{metadata.get('generateName', '')}"
    yield f"  Generation:        \t{metadata.get('generation', 0)}"
    yield f"  Resource Version:  \t{metadata.get('resourceVersion', '')}"
    yield f"  UID:               \t{metadata.get('uid', '')}"


def _pairs(pairs: Mapping[str, str] | None) -> str:
    if not pairs:
        return _NONE
    text = json.dumps(pairs, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return escaped(text)


def _spec(spec: Object) -> Iterator[str]:
    plugins = spec.get("plugins") or {}
    yield "Spec:"
    yield f"  Min Available:     \t{spec.get('minAvailable', 0)}"
    yield "  Plugins:"
    for name in ("env", "ssh"):
        yield f"    {name.capitalize()}:\t[{' '.join(plugins.get(name) or ())}]"
    yield f"  Scheduler Name:    \t{spec.get('schedulerName', '')}"
    yield "  Tasks:"
    for task in spec.get("tasks") or ():
        yield from _task(task)


def _task(task: Object) -> Iterator[str]:
    template = task.get("template") or {}
    metadata, pod = template.get("metadata") or {}, template.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    yield f"    Name:\t{task.get('name', '')}"
    yield f"    Replicas:\t{task.get('replicas', 0)}"
    yield "    Template:"
    yield "      Metadata:"
    yield "        Annotations:"
    for label, name in _POD_ANNOTATIONS:
        yield f"          {label}\t{annotations.get(name, '')}"
    yield f"        Creation Timestamp:\t{stamp(metadata.get('creationTimestamp') or '')}"
    yield "      Spec:"
    yield "        Containers:"
    for container in pod.get("containers") or ():
        yield from _container(container)
    yield "        Image Pull Secrets:"
    for secret in pod.get("imagePullSecrets") or ():
        yield f"          Name:     \t{secret.get('name', '')}"
    yield f"        Restart Policy:   \t{pod.get('restartPolicy', '')}"


def _container(container: Object) -> Iterator[str]:
    yield "          Command:"
    for word in container.get("command") or ():
        yield f"            {word}"
    yield f"          Image:\t{container.get('image', '')}"
    yield f"          Name: \t{container.get('name', '')}"
    yield "          Ports:"
    for port in container.get("ports") or ():
        yield f"            Container Port:\t{port.get('containerPort', 0)}"
        yield f"            Name:          \t{port.get('name', '')}"
    resources = container.get("resources") or {}
    yield "          Resources:"
    for name in ("limits", "requests"):
        amounts = resources.get(name) or {}
        yield f"            {name.capitalize()}:"
        yield f"              Cpu:   \t{canonical(amounts.get('cpu', 0))}"
        yield f"              Memory:\t{canonical(amounts.get('memory', 0))}"
    yield f"            Working Dir:\t{container.get('workingDir', '')}"


def _status(status: Object) -> Iterator[str]:
    yield "Status:"
    for label, name in _COUNTS:
        if count := status.get(name) or 0:
            yield f"  {label}\t{count}"
    yield "  State:"
    yield f"    Phase:\t{(status.get('state') or {}).get('phase', '')}"
    if controlled := status.get("controlledResources"):
        yield "  Controlled Resources:"
        for name, value in controlled.items():
            yield f"    {name}: \t{value}"


def _conditions(conditions: Sequence[Object]) -> Iterator[str]:
    if conditions:
        yield "  Conditions:"
        yield "    Status\tTransitionTime"
    for condition in conditions:
        moment = condition.get("lastTransitionTime")
        timestamp = stamp(moment) if moment else "<nil>"
        yield f"    {condition.get('status', '')} \t{timestamp} "


def _events(events: Sequence[Object], now_s: float) -> Iterator[str]:
    if not events:
        yield f"Events: \t{_NONE}"
        return
    yield "Events:"
    yield _row("Type", "Reason", "Age", "Form", "Message")
    yield _row(*["-------"] * 5)
    for event in events:
        source = (event.get("source") or {}).get("component", "")
        kind, reason, message = (event.get(name, "") for name in ("type", "reason", "message"))
        yield _row(kind, reason, _age(event, now_s), source, message)


def _row(*cells: str) -> str:
    filled = [f"{cell:<{width}}" for cell, width in zip(cells, _EVENT_WIDTHS, strict=False)]
    return "\t".join([*filled, cells[-1]])


def _age(event: Object, now_s: float) -> str:
    last = event_age(event.get("lastTimestamp") or "", now_s)
    if (count := event.get("count") or 0) > 1:
        first = event_age(event.get("firstTimestamp") or "", now_s)
        return f"{last} (x{count} over {first})"
    return event_age(event.get("firstTimestamp") or "", now_s)

"""Plays one case of `cases/*.yaml` on a server and returns what is to be compared.

A case is a name and a list of steps. A step is one line, `VERB path -> shown, shown`, and a body:

- `GET|POST|PUT|DELETE pods/a/status?q=1`: a path below the case's namespace, or `/...` as it is.
- `PATCH` is a merge patch, `JSONPATCH` and `STRATEGIC` the others, `APPLY` server-side apply.
- `TABLE path` is a GET as kubectl sends it.
- `WATCH n path` watches until n events came (0: until the server ends it).
- `UNTIL path` gets until the members that the body names have the values given there; `GONE path`
  until it answers 404.

`{ns}` is the namespace and `{2.metadata.uid}` a member of the answer of step 2 (the first is 0).
A text that starts with `@` is JSON; `{$: pod, ...}` as a body is the template of that name in
`bodies.yaml` with the rest merged in. Statuses of all steps are compared, refusals without their
wording, and bodies of the last step and of those that say what is `shown` (`.` is all).
"""

import copy
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.contract.apiserver.client import Answer, Side
from tests.support.wait import until

HERE = Path(__file__).parent
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PATCHES = {
    "PATCH": "application/merge-patch+json",
    "JSONPATCH": "application/json-patch+json",
    "STRATEGIC": "application/strategic-merge-patch+json",
    "APPLY": "application/apply-patch+yaml",
}
PLACES = {
    "apps/v1": "replicasets statefulsets daemonsets",
    "batch/v1": "jobs.batch",
    "policy/v1": "poddisruptionbudgets",
    "storage.k8s.io/v1": "storageclasses csinodes",
    "scheduling.k8s.io/v1": "priorityclasses",
    "networking.k8s.io/v1": "networkpolicies",
    "apiextensions.k8s.io/v1": "customresourcedefinitions",
    "admissionregistration.k8s.io/v1": "mutatingwebhookconfigurations "
    "validatingwebhookconfigurations",
    "batch.volcano.sh/v1alpha1": "jobs cronjobs",
    "bus.volcano.sh/v1alpha1": "commands",
    "flow.volcano.sh/v1alpha1": "jobflows jobtemplates",
    "nodeinfo.volcano.sh/v1alpha1": "numatopologies",
    "scheduling.volcano.sh/v1beta1": "podgroups queues",
    "topology.volcano.sh/v1alpha1": "hypernodes",
}
GROUPS = {plural: group for group, plurals in PLACES.items() for plural in plurals.split()}
CLUSTER_SCOPED = frozenset(
    (
        "nodes",
        "namespaces",
        "persistentvolumes",
        "storageclasses",
        "priorityclasses",
        "customresourcedefinitions",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "queues",
        "hypernodes",
    )
)
_REFERENCE = re.compile(r"\{(\d+)\.([^{}]+)\}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"\b10\.\d+\.\d+\.\d+\b")
_ACCESS = re.compile(r"kube-api-access-[a-z0-9]{5}")
_SUFFIX = re.compile(r"\bgen-[a-z0-9]{5}\b")


class Case(NamedTuple):
    """One check."""

    topic: str
    name: str
    steps: list[tuple[str, Any]]

    @property
    def id(self) -> str:
        """Name for people and in the file of answers."""
        return f"{self.topic}: {self.name}"


@cache
def cases() -> list[Case]:
    """Return all cases, by topic; a case with `{kind}` in it is one for each of its kinds."""
    found = []
    for file in sorted((HERE / "cases").glob("*.yaml")):
        for name, told in yaml.safe_load(file.read_text("utf-8")).items():
            found += [Case(file.stem, *one) for one in _spread(name, told)]
    return found


def _spread(name: str, told: Any) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    if isinstance(told, list):
        yield name, [next(iter(step.items())) for step in told]
        return
    (key, values), steps = next((k, v) for k, v in told.items() if k != "steps"), told["steps"]
    for value in values:
        filled = _replaced(steps, f"{{{key}}}", str(value))
        yield from _spread(name.replace(f"{{{key}}}", str(value)), filled)


def _replaced(told: Any, mark: str, value: str) -> Any:
    if isinstance(told, dict):
        return {_replaced(k, mark, value): _replaced(v, mark, value) for k, v in told.items()}
    if isinstance(told, list):
        return [_replaced(item, mark, value) for item in told]
    return told.replace(mark, value) if isinstance(told, str) else told


@cache
def bodies() -> dict[str, Any]:
    """Return the templates of bodies."""
    return yaml.safe_load((HERE / "bodies.yaml").read_text("utf-8"))


async def play(side: Side, case: Case) -> list[Any]:
    """Play a case in a namespace of its own."""
    needs_account = any("pod" in line or "pod" in json.dumps(body) for line, body in case.steps)
    player = _Player(side, await side.namespace(with_account=needs_account))
    for line, body in case.steps:
        await player.step(line, body)
    return player.seen(case)


class _Player:
    def __init__(self, side: Side, namespace: str) -> None:
        self._side = side
        self._namespace = namespace
        self._answers: list[Answer] = []

    async def step(self, line: str, body: Any) -> None:
        """Send what a step says."""
        told = self._filled(line.partition("->")[0].strip())
        verb, _, rest = told.partition(" ")
        self._answers.append(await self._send(verb, rest, self._filled(_whole(body))))

    async def _send(self, verb: str, rest: str, body: Any) -> Answer:
        side = self._side
        match verb:
            case "WATCH":
                count, _, place = rest.partition(" ")
                path = self._path(place)
                return await side.events(f"{path}{'&' if '?' in path else '?'}watch=1", int(count))
            case "UNTIL" | "GONE":
                return await self._until(self._path(rest), body if verb == "UNTIL" else None)
            case "TABLE":
                return await side.request("GET", self._path(rest), headers={"Accept": TABLE})
            case _ if verb in PATCHES:
                headers = {"Content-Type": PATCHES[verb]}
                return await side.request("PATCH", self._path(rest), body, headers)
            case _:
                return await side.request(verb, self._path(rest), body)

    async def _until(self, path: str, wanted: dict[str, Any] | None) -> Answer:
        async def probe() -> Answer | None:
            answer = await self._side.request("GET", path)
            if wanted is None:
                return answer if answer.status == 404 else None
            fits = answer.status == 200 and all(
                _show(answer.body, member) == value for member, value in wanted.items()
            )
            return answer if fits else None

        return await until(probe, deadline_s=50.0, describe=f"{path} as {wanted}", every_s=0.05)

    def _path(self, place: str) -> str:
        if place.startswith("/"):
            return place
        path, mark, query = place.partition("?")
        plural = path.partition("/")[0]
        group = GROUPS.get(plural)
        head = f"/apis/{group}" if group else "/api/v1"
        inside = "" if plural in CLUSTER_SCOPED else f"/namespaces/{self._namespace}"
        return f"{head}{inside}/{path.replace('jobs.batch', 'jobs')}{mark}{query}"

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._filled(k): self._filled(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self._filled(item) for item in value]
        if not isinstance(value, str):
            return value
        text = value.replace("{ns}", self._namespace)
        return _REFERENCE.sub(
            lambda found: str(_show(self._answers[int(found[1])].body, found[2])), text
        )

    def seen(self, case: Case) -> list[Any]:
        """Return what is compared: statuses and bodies, without what differs from run to run."""
        clean = _Cleaner(self._namespace)
        seen: list[Any] = []
        last = len(case.steps) - 1
        for number, (answer, (line, _)) in enumerate(zip(self._answers, case.steps, strict=True)):
            body = clean(copy.deepcopy(answer.body))
            _, arrow, shown = line.partition("->")
            entry: dict[str, Any] = {"code": answer.status}
            if answer.status >= 400:
                entry["body"] = _without_words(body)
            elif arrow and shown.strip() != ".":
                for member in (m.strip() for m in shown.split(",")):
                    entry[member] = _show(body, member)
            elif arrow or number == last:
                entry["body"] = body
            seen.append(entry)
        return seen


def _without_words(body: Any) -> Any:
    """Return a refusal without its wording, which clients must not decide by."""
    if not isinstance(body, dict):
        return body
    told = {key: value for key, value in body.items() if key != "message" and value != {}}
    if causes := (body.get("details") or {}).get("causes"):
        bare = [{k: v for k, v in cause.items() if k != "message"} for cause in causes]
        told["details"] = {**body["details"], "causes": sorted(bare, key=json.dumps)}
    return told


def _whole(body: Any) -> Any:
    """Return a body with its template filled in, at any depth."""
    if isinstance(body, list):
        return [_whole(item) for item in body]
    if isinstance(body, str) and body.startswith("@"):
        return json.loads(body[1:])
    if not isinstance(body, dict):
        return body
    rest = {key: _whole(value) for key, value in body.items() if key != "$"}
    return _merged(_whole(bodies()[body["$"]]), rest) if "$" in body else rest


def _merged(base: Any, more: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(more, dict):
        return more
    return {**base, **{key: _merged(base.get(key), value) for key, value in more.items()}}


def _show(value: Any, member: str) -> Any:
    """Return a member by its path; in a list, that of each element."""
    for index, part in enumerate(parts := member.split("|") if "|" in member else _parts(member)):
        if isinstance(value, list) and not part.isdigit():
            return [_show(item, "|".join(parts[index:])) for item in value]
        if isinstance(value, list):
            value = value[int(part)] if int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def _parts(member: str) -> list[str]:
    """Split a path at its dots; `~` stands for a dot within a name."""
    return [part.replace("~", ".") for part in member.split(".")]


class _Cleaner:
    """Replaces what a server makes up by the order in which it was first seen."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._uids: dict[str, str] = {}
        self._versions: dict[str, str] = {}

    def __call__(self, value: Any, *, is_list: bool = False) -> Any:
        if isinstance(value, dict):
            return self._object(value, is_list=is_list)
        if isinstance(value, list):
            return [self(item) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _object(self, value: dict[str, Any], *, is_list: bool) -> dict[str, Any]:
        if value.get("kind") == "APIResourceList":  # in no order on the real one
            value["resources"].sort(key=lambda resource: resource["name"])
        has_items = str(value.get("kind", "")).endswith("List") or value.get("kind") == "Table"
        cleaned = {}
        for key, item in value.items():
            if key == "managedFields":
                continue
            if key == "resourceVersion":
                known = self._versions
                cleaned[key] = (
                    "<version>" if is_list else known.setdefault(item, f"version-{len(known) + 1}")
                )
            elif key == "continue":
                cleaned |= {key: "<token>"} if item else {}
            else:
                cleaned[self._text(key)] = self(item, is_list=has_items and key == "metadata")
        return cleaned

    def _text(self, text: str) -> str:
        text = text.replace(self._namespace, "<ns>")
        text = _TIME.sub("<time>", text)
        text = _UID.sub(lambda m: self._uids.setdefault(m[0], f"uid-{len(self._uids) + 1}"), text)
        text = _ACCESS.sub("kube-api-access", text)
        return _SUFFIX.sub("gen-<suffix>", _ADDRESS.sub("<address>", text))

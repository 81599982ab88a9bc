"""Compares what the services asked API servers for with the roles of k8s/base.

`python -m tools.roles DIRECTORY [--whole]`: the directory has the audit logs of the suite's API
servers (tests/support/roles.py). A request that no rule allows is a missing rule. With `--whole`,
when every test was run, a rule that no request needed is one too many. Each is told on a line of
its own, with service and rule; the exit code is 1 when there is one.

A service's request is known by its user and its user agent together: what a test asks for as the
user of a service does not count.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

RBAC = Path(__file__).parents[1] / "k8s" / "base" / "rbac"
NAMESPACE = "pumice-system"
PREFIX = "pumice-"
_USER = f"system:serviceaccount:{NAMESPACE}:{PREFIX}"


class Right(NamedTuple):
    """One verb on one resource that a role allows; an empty bound is none."""

    verb: str
    group: str
    resource: str
    """With its subresource: `pods/status`."""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        bound = f" {self.name!r}" if self.name else ""
        within = f" in {self.namespace}" if self.namespace else ""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {resource}{bound}{within}"

    def covers(self, asked: "Right") -> bool:
        """Return whether a request is allowed by this right."""
        return (
            self[:3] == asked[:3]
            and self.namespace in {"", asked.namespace}
            and self.name in {"", asked.name}
        )


class Asked(NamedTuple):
    """Requests of one service."""

    service: str
    right: Right
    allowed: bool


_BY_A_PLUGIN = (
    "no request of its own: the plugin OwnerReferencesPermissionEnforcement asks inside of the API"
    " server. Tests of tests/integration/deploy fail without it"
)
_WITHIN = (
    "no request of its own: the API server asks for it within a write of a claim's status. Tests of"
    " tests/integration/binder fail without it"
)
_RENEWED = (
    "a certificate that is renewed; the tests that do so register under names of their own, which"
    " the role does not allow"
)
_LEFT = (
    "the orderly end of a process that registered under the default name, on an API server that"
    " stays: the tests of that end register under names of their own"
)
_MET = "read again after a write that met another client's: which write does is chance"
_BESIDE = (
    "the Lease of a scheduler that has died: the suite's controller is that of `volcano`, and takes"
    " over from the other one"
)
_TAKEN = "read or corrected when the name is taken: by a process that died, or a job before"
_NATIVE = "Kubernetes serves native PodGroups since 1.37. Tests of tests/native fail without it"
_NOT_SERVED = "a kind that the suite's server without streamed lists does not serve"
RARE: Mapping[str, Mapping[tuple[str, str, str], str]] = {
    "admission": {
        ("patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"): _RENEWED,
        ("patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations"): _RENEWED,
        ("delete", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"): _LEFT,
        ("delete", "admissionregistration.k8s.io", "validatingwebhookconfigurations"): _LEFT,
        ("patch", "", "secrets"): _RENEWED,
    },
    "binder": {
        ("patch", "", "events"): "an Event that happens again within minutes",
        ("patch", "resource.k8s.io", "resourceclaims/binding"): _WITHIN,
        ("get", "scheduling.k8s.io", "podgroups"): _NATIVE,
        ("patch", "scheduling.k8s.io", "podgroups/status"): _NATIVE,
        ("get", "scheduling.volcano.sh", "podgroups"): _MET,
        ("get", "scheduling.volcano.sh", "queues"): _MET,
        ("get", "shard.volcano.sh", "nodeshards"): _MET,
    },
    "cache": {
        ("list", "autoscaling.x-k8s.io", "provisioningrequests"): _NOT_SERVED,
        ("list", "resource.k8s.io", "devicetaintrules"): _NOT_SERVED,
        ("list", "scheduling.k8s.io", "podgroups"): _NOT_SERVED,
    },
    "controller": {
        ("update", "batch.volcano.sh", "jobs/finalizers"): _BY_A_PLUGIN,
        ("update", "batch.volcano.sh", "cronjobs/finalizers"): _BY_A_PLUGIN,
        ("update", "flow.volcano.sh", "jobflows/finalizers"): _BY_A_PLUGIN,
        ("update", "", "pods/finalizers"): _BY_A_PLUGIN,
        ("update", "apps", "replicasets/finalizers"): _BY_A_PLUGIN,
        ("update", "apps", "statefulsets/finalizers"): _BY_A_PLUGIN,
        ("update", "apps", "daemonsets/finalizers"): _BY_A_PLUGIN,
        ("update", "batch", "jobs/finalizers"): _BY_A_PLUGIN,
        ("get", "batch.volcano.sh", "cronjobs"): _MET,
        ("get", "batch.volcano.sh", "jobs"): _MET,
        ("get", "flow.volcano.sh", "jobflows"): _MET,
        ("get", "flow.volcano.sh", "jobtemplates"): _MET,
        ("get", "topology.volcano.sh", "hypernodes"): _MET,
        ("get", "scheduling.volcano.sh", "queues"): _MET,
        ("get", "shard.volcano.sh", "nodeshards"): _MET,
        ("get", "scheduling.volcano.sh", "podgroups"): _TAKEN,
        ("get", "", "pods"): _TAKEN,
        ("get", "", "services"): _TAKEN,
        ("patch", "", "services"): _TAKEN,
        ("get", "", "configmaps"): _TAKEN,
        ("get", "networking.k8s.io", "networkpolicies"): _TAKEN,
        ("patch", "networking.k8s.io", "networkpolicies"): _TAKEN,
        ("get", "", "persistentvolumeclaims"): _TAKEN,
        ("patch", "coordination.k8s.io", "leases"): _BESIDE,
    },
    "visibility": {
        ("patch", "", "secrets"): _RENEWED,
    },
}
"""Service → (verb, group, resource) → why no request of the suite shows that the rule is needed."""


def granted(folder: Path = RBAC) -> dict[str, set[Right]]:
    """Return what the role of each service allows; services without a rule are left out."""
    rights: dict[str, set[Right]] = {}
    for path in sorted(folder.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text("utf-8")):
            name = document["metadata"]["name"].removeprefix(PREFIX)
            if document["kind"] in {"ClusterRole", "Role"} and name == path.stem:
                rights.setdefault(name, set()).update(_of_role(document))
    return rights


def _of_role(role: Mapping[str, object]) -> Iterator[Right]:
    namespace = role["metadata"].get("namespace", "")  # type: ignore[attr-defined]
    for rule in role["rules"]:  # type: ignore[attr-defined]
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield Right(verb, group, resource, namespace, name)


def asked_for(logs: Iterable[Path]) -> set[Asked]:
    """Return what the services asked for, each once, of all logs."""
    found: set[Asked] = set()
    for path in logs:
        with path.open("rb") as log:
            found.update(filter(None, map(_of_line, log)))
    return found


def _of_line(line: bytes) -> Asked | None:
    if not line.endswith(b"}\n"):
        return None  # an API server was killed while it wrote
    entry = json.loads(line)
    user = entry["user"]["username"]
    service = user.removeprefix(_USER)
    ref = entry.get("objectRef")
    if service == user or entry.get("userAgent") != f"{PREFIX}{service}" or ref is None:
        return None
    decision = entry.get("annotations", {}).get("authorization.k8s.io/decision", "")
    resource = "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
    place = (ref.get("namespace", ""), ref.get("name", ""))
    right = Right(entry["verb"], ref.get("apiGroup", ""), resource, *place)
    return Asked(service, right, decision != "forbid")


def compare(
    rights: Mapping[str, set[Right]],
    asked: Iterable[Asked],
    *,
    whole: bool,
    rare: Mapping[str, Mapping[tuple[str, str, str], str]] = RARE,
) -> list[str]:
    """Return a line for each rule that is missing and, of the `whole` suite, for each unused one.

    A missing rule comes with one request as an example. A request counts for the narrowest right
    that covers it. An API server that has just started refuses all until it has read the roles: a
    request that was refused although a right covers it says nothing.
    """
    missing: dict[tuple[str, str, str, str], Right] = {}
    unused = {(service, right) for service, known in rights.items() for right in known}
    for service, right, allowed in asked:
        covering = [known for known in rights.get(service, ()) if known.covers(right)]
        if covering:
            if allowed:
                unused.discard((service, max(covering, key=_narrowness)))
        else:
            example = missing.setdefault((service, *right[:3]), right)
            missing[service, *right[:3]] = min(example, right)
    lines = [
        f"missing rule: {PREFIX}{service} asked to {right}"
        for (service, *_), right in missing.items()
    ]
    for service, ways in rare.items():
        known = {right[:3] for right in rights.get(service, ())}
        lines += [f"rare, and no rule: {service} {way}" for way in ways if way not in known]
    if whole:
        lines += [
            f"unused rule: {PREFIX}{service} may {right}, and no request of the suite needed it"
            for service, right in unused
            if right[:3] not in rare.get(service, {})
        ]
    return sorted(lines)


def _narrowness(right: Right) -> tuple[str, str]:
    return (right.name, right.namespace)


def main(words: list[str]) -> int:
    """Compare, and print a line for each difference; returns the exit code."""
    directory, *options = words
    logs = sorted(Path(directory).glob("*.log"))
    asked = asked_for(logs)
    lines = compare(granted(), asked, whole="--whole" in options)
    for line in lines:
        print(line)
    print(f"{len(lines)} differences, {len(asked)} kinds of requests, {len(logs)} API servers")
    return 1 if lines or not asked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

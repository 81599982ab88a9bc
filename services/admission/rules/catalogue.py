"""The hooks by path (W01): kind, rule, and the facts that the rule needs.

`adapters.registration` makes the webhook configurations from this table, so what is registered is
what is served.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from services.admission.rules import (
    cronjobs,
    hypernodes,
    jobs,
    podgroups,
    pods,
    queues,
    users,
)
from services.admission.rules.review import (
    AdmissionRequest,
    ReviewFacts,
    Rule,
    Terms,
    Verdict,
    denied,
    read,
    refused,
)
from shared.api import keys
from shared.api.flow import JobFlow
from shared.api.nesting import TOO_DEEP
from shared.api.scheduling import DEFAULT_QUEUE
from shared.jobs.flows import flow_problems
from shared.jobs.problems import Problem


def _validate_jobflow(request: AdmissionRequest, facts: ReviewFacts, terms: Terms) -> Verdict:
    """Refuse a flow that names unknown jobs or goes round in a circle (W60)."""
    del facts, terms
    flow = read(request, JobFlow, "CREATE", "UPDATE")
    return flow if isinstance(flow, Verdict) else refused(flow_problems(flow))


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """One path of admission."""

    path: str
    rule: Rule
    name: str
    """Of the webhook, within `volcano.sh`."""
    group: str = ""
    version: str = "v1"
    resource: str
    operations: tuple[str, ...]
    queues: bool = False
    """Whether the rule needs the queues."""
    fresh: bool = False
    """Whether an admission also needs fresh queues, not ones of a second ago."""
    namespace: bool = False
    """Whether the rule needs the annotations of the object's namespace."""
    submitted: bool = False
    """Whether the rule needs the submitted jobs where these are limited."""
    owner: bool = False
    """Whether the rule may need the annotations of the object's owner."""
    others: tuple[tuple[str, str, str], ...] = ()
    """Group, version and plural of other kinds that the rule is for."""

    @property
    def resources(self) -> tuple[tuple[str, str, str], ...]:
        """Return group, version and plural of every kind."""
        return ((self.group, self.version, self.resource), *self.others)

    def review(self, request: AdmissionRequest, facts: ReviewFacts, terms: Terms) -> Verdict:
        """Return the verdict of the rule, or a refusal of an object of another kind."""
        if request.resource not in {"", *(plural for _, _, plural in self.resources)}:
            expected = f"{self.group} {self.version} {self.resource}"
            return denied(f"expect resource to be {{{expected}}}")
        if request.too_deep:
            return refused([Problem("object", TOO_DEEP)])
        return self.rule(request, facts, terms)

    @property
    def mutates(self) -> bool:
        """Tell whether it may change the object."""
        return self.path.endswith("/mutate")


_BATCH: Final = "batch.volcano.sh"
_SCHEDULING: Final = "scheduling.volcano.sh"

_ALL: Final = (
    Hook(
        path="/jobs/mutate", rule=jobs.mutate, name="mutatejob",
        group=_BATCH, version="v1alpha1", resource="jobs", operations=("CREATE",), queues=True,
    ),
    Hook(
        path="/jobs/validate", rule=jobs.validate, name="validatejob",
        group=_BATCH, version="v1alpha1", resource="jobs", operations=("CREATE", "UPDATE"),
        queues=True, submitted=True,
    ),
    Hook(
        path="/podgroups/mutate", rule=podgroups.mutate, name="mutatepodgroup",
        group=_SCHEDULING, version="v1beta1", resource="podgroups", operations=("CREATE",),
        namespace=True,
    ),
    Hook(
        path="/podgroups/validate", rule=podgroups.validate, name="validatepodgroup",
        group=_SCHEDULING, version="v1beta1", resource="podgroups", operations=("CREATE",),
        queues=True,
    ),
    Hook(
        path="/pods/mutate", rule=pods.mutate, name="mutatepod",
        resource="pods", operations=("CREATE",),
    ),
    Hook(
        path="/pods/validate", rule=pods.validate, name="validatepod",
        resource="pods", operations=("CREATE",),
    ),
    Hook(
        path="/queues/mutate", rule=queues.mutate, name="mutatequeue",
        group=_SCHEDULING, version="v1beta1", resource="queues", operations=("CREATE",),
    ),
    Hook(
        path="/queues/validate", rule=queues.validate, name="validatequeue",
        group=_SCHEDULING, version="v1beta1", resource="queues",
        operations=("CREATE", "UPDATE", "DELETE"), queues=True, fresh=True,
    ),
    Hook(
        path="/jobflows/validate", rule=_validate_jobflow, name="validatejobflow",
        group="flow.volcano.sh", version="v1alpha1", resource="jobflows",
        operations=("CREATE", "UPDATE"),
    ),
    Hook(
        path="/cronjobs/validate", rule=cronjobs.validate, name="validatecronjob",
        group=_BATCH, version="v1alpha1", resource="cronjobs", operations=("CREATE", "UPDATE"),
    ),
    Hook(
        path="/hypernodes/validate", rule=hypernodes.validate, name="validatehypernode",
        group="topology.volcano.sh", version="v1alpha1", resource="hypernodes",
        operations=("CREATE", "UPDATE"),
    ),
    Hook(
        path="/users/mutate", rule=users.mutate, name="mutateuser",
        group=_BATCH, version="v1alpha1", resource="jobs",
        others=(
            (_BATCH, "v1alpha1", "cronjobs"),
            ("flow.volcano.sh", "v1alpha1", "jobflows"),
            (_SCHEDULING, "v1beta1", "podgroups"),
            ("", "v1", "pods"),
        ),
        operations=("CREATE", "UPDATE"), owner=True,
    ),
)  # fmt: skip

HOOKS: Final[Mapping[str, Hook]] = {hook.path: hook for hook in _ALL}


def conditions(hook: Hook, terms: Terms) -> Sequence[tuple[str, str]] | None:
    """Return match conditions (name, CEL) under which the hook is called.

    None if the hook has no effect and need not be registered: thousands of pods are created, and
    few concern a rule.
    """
    match hook.path:
        case "/pods/validate":
            return [("has-a-budget", _any_annotation(pods.BUDGETS)), _ours(terms)]
        case "/pods/mutate":
            return _to_be_changed(terms)
        case "/podgroups/mutate":
            queue = f"has(object.spec.queue) && object.spec.queue == '{DEFAULT_QUEUE}'"
            return [("in-the-default-queue", queue)]
        case "/jobs/validate":
            changed = _changed(keys.MAX_RUNTIME)
            return [("spec-is-new", f"{_SPEC_IS_NEW} || {changed}")]
        case "/users/mutate":
            return _user_may_be_wrong(terms)
        case _:
            return []


_SPEC_IS_NEW: Final = "request.operation == 'CREATE' || object.spec != oldObject.spec"
"""Of a job's changes those of its spec and its limit are reviewed: no call for finalizers."""


def _annotation(key: str, of: str) -> str:
    """Return an expression: the value of an annotation, "" without it."""
    notes = f"{of}.metadata.annotations"
    return f'(has({notes}) && "{key}" in {notes} ? {notes}["{key}"] : "")'


def _changed(key: str) -> str:
    """Return an expression: whether an update changes an annotation."""
    return f"{_annotation(key, 'object')} != {_annotation(key, 'oldObject')}"


def _user_may_be_wrong(terms: Terms) -> Sequence[tuple[str, str]]:
    """Return conditions without which the user of an object is as it should be.

    Pods and PodGroups that the controller makes have their user already, and cost no call.
    """
    stated = _annotation(keys.USER, "object")
    ours, scheduler = _ours(terms)
    trusted = ", ".join(_text(name) for name in terms.trusted_requesters)
    return [
        ("user-is-new", f"request.operation == 'CREATE' || {_changed(keys.USER)}"),
        (ours, f"request.resource.resource != 'pods' || ({scheduler})"),
        ("user-is-not-stated", f'!(request.userInfo.username in [{trusted}]) || {stated} == ""'),
    ]


def _any_annotation(names: Sequence[str]) -> str:
    tests = [f"{_text(name)} in object.metadata.annotations" for name in names]
    return f"has(object.metadata.annotations) && ({' || '.join(tests)})"


def _ours(terms: Terms) -> tuple[str, str]:
    names = ", ".join(_text(name) for name in terms.scheduler_names)
    return "ours", f"has(object.spec.schedulerName) && object.spec.schedulerName in [{names}]"


def _to_be_changed(terms: Terms) -> Sequence[tuple[str, str]] | None:
    """Return the condition that a resource group selects the pod, or that it requests a gate."""
    tests = _in_a_group(terms)
    name = "in-a-resource-group"
    if terms.queue_gates:
        tests.append(f"({_any_annotation([keys.QUEUE_GATE])})")
        name = "in-a-resource-group-or-gated"
    return [(name, " || ".join(tests))] if tests else None


def _in_a_group(terms: Terms) -> list[str]:
    """Return tests of which one holds for a pod that some resource group selects."""
    tests: list[str] = []
    marks: list[str] = []
    for group in terms.resource_groups:
        if group.object.key == "namespace":
            names = ", ".join(_text(name) for name in group.object.value)
            tests.append(f"request.namespace in [{names}]")
            continue
        marks += group.annotations()
        if not group.object.key:
            marks.append(keys.RESOURCE_GROUP)
    if marks:
        tests.append(f"({_any_annotation(sorted(set(marks)))})")
    return tests


def _text(value: str) -> str:
    """Return a text as a CEL literal; JSON's escapes are CEL's, too."""
    return msgspec.json.encode(value).decode()

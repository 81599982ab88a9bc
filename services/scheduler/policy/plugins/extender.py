"""extender (PL24): rules of a user's HTTP server, called by POST with JSON.

The engine does no I/O: the service passes a function to the plugin, which returns within the
configured time or raises `ExtenderUnreachable`. After a failure the server is not called again in
the same cycle, so an unreachable server costs one timeout per cycle.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from pumice.plugins import (
    Arguments,
    BoolArray,
    Cluster,
    CodeArray,
    CrossNodeScore,
    CrossNodeVerdict,
    FloatArray,
    Hooks,
    Job,
    NodeRows,
    Opinion,
    Queue,
    Reason,
    Task,
    TaskClass,
    Vote,
)
from services.scheduler.policy.arguments import BadArgument, boolean, text
from services.scheduler.policy.extender_forms import Form, Forms
from shared.model import durations
from shared.model.status import TaskStatus

_VERBS: Final = (
    "onSessionOpen",
    "onSessionClose",
    "predicate",
    "prioritize",
    "preemptable",
    "reclaimable",
    "queueOverused",
    "jobEnqueueable",
    "jobReady",
)
_REFUSED, _UNRESOLVABLY_REFUSED, _FAILED = 1, 2, 3
_REASONS: Final = (
    Reason("node(s) were refused by the extender"),
    Reason("node(s) were refused by the extender for good", resolvable=False),
    Reason("the extender failed"),
)
_UNRESOLVABLE: Final = 3
"""Volcano's code UnschedulableAndUnresolvable."""


class ExtenderUnreachable(Exception):  # noqa: N818 - reads as the fact it states
    """The extender gave no usable response in time."""


Post = Callable[[str, bytes, float], bytes]
"""POSTs a body to a URL and returns the response body within a number of seconds."""


def nowhere(url: str, _body: bytes, _timeout_s: float) -> bytes:
    """Raise `ExtenderUnreachable`: for cycles without a network, such as replayed ones."""
    raise ExtenderUnreachable(f"{url}: there is no network here")


class _ExtenderReply(msgspec.Struct, rename="camel"):
    """The fields of all verbs' responses; each verb reads its own."""

    error_message: str = ""
    status: Any = None
    code: int = 0
    node_score: dict[str, float] | None = None
    victims: list[dict[str, Any]] | None = None
    overused: bool = False


class Extender:
    """The server, with the verbs that the configuration names."""

    name = "extender"

    def __init__(self, arguments: Arguments, post: Post = nowhere) -> None:
        """Read the URL, the verbs, the timeout and `extender.managedResources`."""
        self._post = post
        self._url = text(arguments, "extender.urlPrefix").rstrip("/")
        if not self._url.startswith(("http://", "https://")):
            raise BadArgument(
                f"extender.urlPrefix: {self._url!r} is no http:// or https:// address"
            )
        self._verbs = {verb: text(arguments, f"extender.{verb}Verb") for verb in _VERBS}
        self._ignorable = boolean(arguments, "extender.ignorable", default=False)
        stated = text(arguments, "extender.httpTimeout", "1s")
        timeout_s = durations.parse(stated)
        if timeout_s is None or timeout_s <= 0:
            raise BadArgument(f"extender.httpTimeout: {stated!r} is no duration such as 100ms")
        self._timeout_s = timeout_s
        self._managed = _names(arguments, "extender.managedResources")
        self._down = False
        self._examples: dict[int, Task] = {}
        self._answers: dict[tuple[int, int, int, bytes], int] = {}

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Announce the session to the server and add the rules that have a verb."""
        self._cluster = cluster
        self._forms = Forms(cluster)
        self._places = {name: at for at, name in enumerate(cluster.node_names)}
        if self._verbs["onSessionOpen"]:
            answered = self._call("onSessionOpen", self._forms.world)
            if answered is None and not self._ignorable:
                return
        given: Mapping[str, Callable[[], None]] = {
            "onSessionClose": lambda: hooks.closed(lambda: self._notify("onSessionClose")),
            "predicate": lambda: hooks.predicate(self._predicate, reasons=_REASONS),
            "prioritize": lambda: self._prioritize(hooks),
            "preemptable": lambda: hooks.preemptable(self._victims("preemptable")),
            "reclaimable": lambda: hooks.reclaimable(self._victims("reclaimable")),
            "queueOverused": lambda: hooks.overused(self._overused),
            "jobEnqueueable": lambda: hooks.job_enqueueable(self._enqueueable),
            "jobReady": lambda: hooks.job_ready(self._missing),
        }
        for verb, add in given.items():
            if self._verbs[verb]:
                add()

    # --- asking ------------------------------------------------------------------------------

    def _call(self, verb: str, form: Callable[[], Form]) -> _ExtenderReply | None:
        """Return the response, None if there is none."""
        if self._down:
            return None
        body = msgspec.json.encode(form())
        try:
            reply = self._post(f"{self._url}/{self._verbs[verb]}", body, self._timeout_s)
            if verb.startswith("onSession"):
                return _ExtenderReply()
            return msgspec.json.decode(reply, type=_ExtenderReply)
        except (ExtenderUnreachable, msgspec.DecodeError):
            self._down = True
            return None

    def _notify(self, verb: str) -> None:
        self._call(verb, dict)

    def _concerns(self, task_class: TaskClass) -> bool:
        """Tell whether a class requests a managed resource; true if none is configured."""
        names = self._cluster.resources
        return not self._managed or any(names[dim] in self._managed for dim in task_class.dims)

    def _example(self, task_class: TaskClass) -> Task | None:
        """Return a pending task of a class; all of them are equal in what placement reads."""
        known = self._examples.get(task_class.id)
        if (
            known is not None
            and known.status == TaskStatus.PENDING
            and known.task_class is task_class
        ):
            return known
        for job in self._cluster.jobs:
            for task in job.by_status[TaskStatus.PENDING].values():
                if task.task_class is task_class:
                    self._examples[task_class.id] = task
                    return task
        return None

    # --- nodes -------------------------------------------------------------------------------

    def _predicate(self, task_class: TaskClass, rows: NodeRows) -> CodeArray:
        codes = np.zeros(len(rows), dtype=np.uint8)
        task = self._example(task_class) if self._concerns(task_class) else None
        if task is None:
            return codes
        pairs = zip(rows.index.tolist(), rows.extra.tolist(), strict=True)
        for at, (column, extra) in enumerate(pairs):
            if self._has_room(task_class, column, extra):
                codes[at] = self._verdict(task, column, extra)
        return codes

    def _has_room(self, task_class: TaskClass, column: int, extra: int) -> bool:
        """Tell whether the node has room for the task, so that a request is useful."""
        nodes = self._cluster.nodes
        if not nodes.alive[column]:
            return False
        future = (
            nodes.allocatable[:, column]
            - nodes.used[:, column]
            - nodes.pipelined[:, column]
            + nodes.releasing[:, column]
            - extra * task_class.request
        )
        dims = list(task_class.dims)
        return task_class.best_effort or bool((future[dims] >= task_class.request[dims]).all())

    def _verdict(self, task: Task, column: int, extra: int) -> int:
        """Return the code for a node in its current state; requested once per state."""
        nodes, task_class = self._cluster.nodes, task.task_class
        state = b"".join(
            array[:, column].tobytes() for array in (nodes.used, nodes.releasing, nodes.pipelined)
        )
        key = (task_class.id, column, extra, state)
        found = self._answers.get(key)
        if found is None:
            found = self._answers[key] = self._refusal_code(task, column, extra)
        return found

    def _refusal_code(self, task: Task, column: int, extra: int) -> int:
        more = extra * task.task_class.request
        forms = self._forms
        reply = self._call(
            "predicate", lambda: {"task": forms.task(task), "node": forms.node(column, more)}
        )
        if reply is None:
            return 0 if self._ignorable else _FAILED
        refused = reply.error_message or (reply.status if isinstance(reply.status, str) else "")
        if not refused:
            return 0
        return _UNRESOLVABLY_REFUSED if reply.code == _UNRESOLVABLE else _REFUSED

    def _prioritize(self, hooks: Hooks) -> None:
        hooks.cross_node_score(self._scorer, weight=1.0)
        if not self._ignorable:
            hooks.cross_node_predicate(self._unscored, reasons=[_REASONS[_FAILED - 1]])

    def _unscored(self, task_class: TaskClass) -> CrossNodeVerdict | None:
        """Refuse all nodes once the extender has failed: its scores are missing."""
        if not self._concerns(task_class):
            return None
        size = len(self._cluster.node_names)
        return CrossNodeVerdict(lambda: np.full(size, self._down, dtype=np.uint8))

    def _scorer(self, task_class: TaskClass) -> CrossNodeScore | None:
        if not self._concerns(task_class):
            return None
        forms = self._forms

        def score(mask: BoolArray) -> FloatArray:
            result = np.zeros(len(mask), dtype=np.float64)
            task = self._example(task_class)
            if task is None:
                return result
            columns = np.flatnonzero(mask).tolist()
            reply = self._call(
                "prioritize",
                lambda: {"task": forms.task(task), "nodes": [forms.node(c) for c in columns]},
            )
            if reply is not None and not reply.error_message:
                for name, points in (reply.node_score or {}).items():
                    if name in self._places:
                        result[self._places[name]] = points
            return result

        return score

    # --- jobs, queues, victims ---------------------------------------------------------------

    def _victims(self, verb: str) -> Callable[[Task, Sequence[Task]], list[Task] | None]:
        forms = self._forms

        def choose(evictor: Task, evictees: Sequence[Task]) -> list[Task] | None:
            if not self._concerns(evictor.task_class):
                return None
            reply = self._call(
                verb,
                lambda: {
                    "evictor": forms.task(evictor),
                    "evictees": [forms.task(task) for task in evictees],
                },
            )
            if reply is None:
                return []  # ⚠ ignorable or not: an empty list of victims clears the tier (SS06)
            if reply.status == 0:
                return None
            offered = {task.uid: task for task in evictees}
            named = [str(victim.get("UID", "")) for victim in reply.victims or []]
            return [offered[uid] for uid in named if uid in offered]

        return choose

    def _enqueueable(self, job: Job) -> Opinion:
        reply = self._call("jobEnqueueable", lambda: {"job": self._forms.job(job)})
        if reply is None:
            vote = Vote.PERMIT if self._ignorable else Vote.REJECT
            return Opinion(vote, "the extender failed")
        status = reply.status if isinstance(reply.status, int) else 0
        return Opinion(Vote((status > 0) - (status < 0)), "the extender says no")

    def _overused(self, queue: Queue) -> bool:
        reply = self._call("queueOverused", lambda: {"queue": self._forms.queue(queue)})
        return not self._ignorable if reply is None else reply.overused

    def _missing(self, job: Job) -> int:
        reply = self._call("jobReady", lambda: {"job": self._forms.job(job)})
        if reply is None:
            # ⚠ As upstream: a failure that may not be ignored counts as ready, one that may does
            # not.
            return int(self._ignorable)
        return int(reply.status is not True)


def _names(arguments: Arguments, key: str) -> frozenset[str]:
    value = arguments.get(key)
    listed = value.split(",") if isinstance(value, str) else value or []
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise BadArgument(f"{key}: {value!r} is no list of resource names")
    return frozenset(name.strip() for name in listed if name.strip())

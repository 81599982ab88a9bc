"""Draws `docs/states.md` from the tables that the controllers act by (`make crds`).

One table per entity, one diagram and one list per table. `render` is apart so that the test that
compares the page calls the very same code.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from services.controller.job.phases import TABLE as JOB_TABLE
from services.controller.job.phases import Do, KillScope, Retain, Transition
from services.controller.jobflow.status import NEXT as FLOW_TABLE
from services.controller.queue.plan import TABLE as QUEUE_TABLE
from services.controller.queue.plan import NextState
from shared.api.batch import Action, JobPhase

PAGE: Final = Path(__file__).parent.parent / "docs" / "states.md"
_START: Final = "[*]"
_OTHER: Final = "any other"

Edges = Mapping[tuple[str, str], Iterable[str]]
"""(from, to) → what leads there, in order."""


def render() -> str:
    """Return the whole page."""
    return "\n".join([*_head(), *_jobs(), *_queues(), *_flows()])


def _head() -> Iterator[str]:
    yield "# States"
    yield ""
    yield "This page is a reference: what the controllers do in each state of an object."
    yield "`make crds` generates it from the tables in the code."
    yield ""


def _jobs() -> Iterator[str]:
    yield "## Job"
    yield ""
    yield "`services/controller/job/phases.py` (J15 to J20, J37). A label is an action, from a"
    yield "Command or a policy, or a condition on the counts of pods. When no retry is left, a kill"
    yield "keeps pods that have ended (J21)."
    yield ""
    edges: dict[tuple[str, str], list[str]] = defaultdict(list)
    edges[_START, JobPhase.PENDING].append("created")
    for phase, rows in JOB_TABLE.items():
        for action, move in rows.items():
            if move.enters is not None:
                edges[phase, move.enters].append(action or _OTHER)
            for target, when in move.then.leads_to.items() if move.then is not None else ():
                if when not in edges[phase, target]:
                    edges[phase, target].append(when)
    yield from _diagram(edges)
    yield "| phase | action | what is done | pods that stay | then |"
    yield "|---|---|---|---|---|"
    for phase, rows in JOB_TABLE.items():
        alike: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        for action, move in rows.items():
            alike[_done(move, action), _stay(move), _then(move)].append(action or _OTHER)
        for (done, stay, then), actions in alike.items():
            yield f"| {phase} | {', '.join(actions)} | {done} | {stay} | {then} |"
    yield ""


def _done(move: Transition, action: Action | None) -> str:
    if move.do is Do.SYNC:
        return "create what the spec asks for" if action is None else "count"
    if move.scope is KillScope.JOB:
        return "delete pods and PodGroup; version + 1"
    return "delete the pods in the action's scope"


def _stay(move: Transition) -> str:
    if move.do is Do.SYNC:
        return "all wanted"
    if move.scope is not KillScope.JOB:
        return "all others"
    stays = {Retain.FINISHED: "succeeded and failed", Retain.SUCCEEDED: "succeeded"}
    return stays.get(move.retain, "none")


def _then(move: Transition) -> str:
    if move.enters is not None:
        return f"{move.enters}{'; retryCount + 1' if move.retry else ''}"
    leads = move.then.leads_to if move.then is not None else {}
    return " or ".join(leads) or "stays"


def _queues() -> Iterator[str]:
    yield "## Queue"
    yield ""
    yield "`services/controller/queue/plan.py` (Q02). `holding`: the queue has PodGroups."
    yield ""
    edges: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (state, action), outcome in QUEUE_TABLE.items():
        for target, when in _outcomes(outcome):
            if state is None or target != state:
                edges[state or _START, target].append(f"{action}{when}")
    yield from _diagram(edges)


def _outcomes(outcome: NextState) -> Iterator[tuple[str, str]]:
    if outcome.empty == outcome.nonempty:
        yield outcome.empty, ""
    else:
        yield outcome.empty, ", empty"
        yield outcome.nonempty, ", holding"


def _flows() -> Iterator[str]:
    yield "## JobFlow"
    yield ""
    yield "`services/controller/jobflow/status.py` (F03). A label is the state of the flow's jobs."
    yield ""
    edges: dict[tuple[str, str], list[str]] = defaultdict(list)
    edges[_START, next(iter(FLOW_TABLE))].append("created")
    for phase, leads in FLOW_TABLE.items():
        for progress, target in leads.items():
            edges[phase, target].append(progress)
    yield from _diagram(edges)


def _diagram(edges: Edges) -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    for (source, target), labels in edges.items():
        yield f"    {source} --> {target}: {' or '.join(labels)}"
    yield "```"
    yield ""


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()

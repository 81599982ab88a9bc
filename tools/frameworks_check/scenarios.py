"""The scenarios: what users expect of a gang scheduler, for each workload."""

from collections.abc import Awaitable, Callable
from typing import Final

from tools.frameworks_check.stage import HALVES, NAMESPACE, Stage
from tools.frameworks_check.workloads import Workload, at

_ALIKE: Final = 30
"""Looks in a row at a state that counts as settled."""
_QUEUE: Final = "research"


async def runs(stage: Stage) -> None:
    """Check that a workload gets its queue, its minimum and all its pods, and that it ends."""
    workload = stage.workload
    await stage.create("one", run_s=3 if workload.ends else 0)
    group = await stage.wait_minimum("one", workload.least())
    assert group["spec"]["queue"] == _QUEUE, group["spec"]
    if workload.prioritized:
        assert group["spec"].get("priorityClassName") == "high-priority", group["spec"]
    if workload.ends is None:
        await stage.wait_running("one", workload.pods)
        await stage.finished("one")
        return

    async def ended() -> bool:
        return workload.has_ended(await stage.get("one"))

    await stage.wait(f"{workload.kind} ends", ended)
    await stage.finished("one")


async def waits(stage: Stage) -> None:
    """Check that a gang that does not fit waits whole, and is explained by its workload's name."""
    workload = stage.workload
    await stage.create("big", workers=workload.too_many)
    await stage.wait_minimum("big", workload.least(workload.too_many))

    async def told() -> bool:
        group = await stage.group("big") or {}
        conditions = group.get("status", {}).get("conditions", ())
        return any(c["type"] == "Unschedulable" and c["status"] == "True" for c in conditions)

    await stage.wait("the PodGroup says why it waits", told)

    async def none_placed() -> bool:
        return not any(pod["spec"].get("nodeName") for pod in await stage.pods("big"))

    await stage.stays("no pod of a gang that does not fit is placed", none_placed)
    own = workload.argument("big")
    for command in (("why",), ("when",), ("top", "-o", "wide")):
        told_text = await stage.pumice(*command)
        assert own in told_text, told_text
    for command in ("why", "timeline"):
        told_text = await stage.pumice(command, own)
        assert (own if workload.is_plain else f" of {workload.kind} big") in told_text, told_text


async def priority(stage: Stage) -> None:
    """Check that of two gangs that wait, the one of the higher priority starts first."""
    for half in HALVES:
        await stage.block(half)
    await stage.create("low", priority="low-priority")
    await stage.wait_minimum("low", stage.workload.least())
    await stage.create("high")
    await stage.wait_minimum("high", stage.workload.least())
    await stage.unblock(HALVES[0])
    await stage.wait_running("high", stage.workload.pods)

    async def low_waits() -> bool:
        return not any(pod["spec"].get("nodeName") for pod in await stage.pods("low"))

    await stage.stays("the gang of the lower priority waits", low_waits)


async def scales(stage: Stage) -> None:
    """Check that workers that are added start, and that removed ones go."""
    workload = stage.workload
    await stage.create("one")
    await stage.wait_running("one", workload.pods)
    assert workload.scaling is not None
    path, step, pods = workload.scaling.path, workload.scaling.step, workload.scaling.pods
    first = at(await stage.get("one"), path)
    await stage.change("one", path, value=first + step)
    await stage.wait_running("one", workload.pods + step * pods)
    if workload.scaling.down:
        await stage.change("one", path, value=first - 1)
        await stage.wait_running("one", workload.pods - pods)


async def suspends(stage: Stage) -> None:
    """Check that a suspended workload has no pods, and runs whole once it is resumed."""
    workload = stage.workload
    assert workload.suspend is not None
    await stage.create("one")
    await stage.wait_running("one", workload.pods)
    await stage.change("one", workload.suspend, value=True)

    async def gone() -> bool:
        return not await stage.pods("one")

    await stage.wait("no pod of a suspended workload is left", gone)
    await stage.change("one", workload.suspend, value=False)
    await stage.wait_running("one", workload.pods)


async def restarts(stage: Stage) -> None:
    """Check that restarts of the operator and of Pumice change nothing that runs or waits."""
    workload = stage.workload
    await stage.create("one")
    await stage.wait_running("one", workload.pods)
    await stage.create("big", workers=workload.too_many)
    await stage.wait_minimum("big", workload.least(workload.too_many))

    async def state() -> set[tuple[str, str]]:
        found = [*await stage.pods(), *await stage.api.items("podgroups", NAMESPACE)]
        return {(each["metadata"]["uid"], each["spec"].get("nodeName", "")) for each in found}

    seen: list[set[tuple[str, str]]] = []

    async def settled() -> bool:
        seen.append(await state())
        return len(seen) > _ALIKE and all(each == seen[-1] for each in seen[-_ALIKE:])

    await stage.wait("all pods are created", settled)
    before = seen[-1]
    await stage.restart()

    async def same() -> bool:
        return await state() == before

    await stage.stays("restarts change neither pods nor PodGroups", same)


async def deletion(stage: Stage) -> None:
    """Check that a workload deleted in the middle leaves neither pods nor PodGroups."""
    await stage.create("one")
    await stage.wait_running("one", stage.workload.pods)
    await stage.delete("one")
    await stage.wait_nothing()


Scenario = Callable[[Stage], Awaitable[None]]


def of(workload: Workload) -> dict[str, Scenario]:
    """Return the scenarios of a workload by their title."""
    found: dict[str, Scenario] = {"runs": runs, "waits whole": waits}
    if workload.prioritized:
        found["priority"] = priority
    if workload.scaling is not None:
        found["scales"] = scales
    if workload.suspend is not None:
        found["suspends"] = suspends
    return {**found, "restarts": restarts, "deletion": deletion}

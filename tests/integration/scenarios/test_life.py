"""How jobs end, begin again, obey orders, grow and shrink (J16 to J40)."""

import pytest

from tests.integration.scenarios.playing import Playing, Scenario, Scenarios
from tests.integration.scenarios.scene import FINISHED, Object, Scene, ending, on, task, uids

pytestmark = pytest.mark.asyncio(loop_scope="session")

scenarios = Scenarios()


def ends(
    codes: tuple[int, ...], phase: str, *, minimum: int | None = None, success: int | None = None
) -> Scenario:
    """Return the scenario of a job whose pods end with these codes, one after the other."""

    async def scenario(scene: Scene) -> None:
        spec = {} if success is None else {"minSuccess": success}
        await scene.running("j", task("a", len(codes)), min_available=minimum, **spec)
        for index, code in enumerate(codes):
            await scene.end(f"j-a-{index}", code)
        job = await scene.phase("j", phase)
        assert job["status"].get("succeeded", 0) == codes.count(0)
        assert job["status"].get("failed", 0) == len(codes) - codes.count(0)
        assert [c["status"] for c in job["status"]["conditions"]][-1] == phase

    return scenario


scenarios.add("all pods succeed", ends((0, 0, 0), "Completed"))
scenarios.add("all pods fail", ends((1, 1), "Failed"))
scenarios.add("one of a whole gang fails", ends((0, 0, 1), "Failed"))
scenarios.add("one fails beyond the minimum", ends((0, 0, 1), "Completed", minimum=2))
scenarios.add("too few succeed for the minimum", ends((0, 1, 1), "Failed", minimum=2))
scenarios.add("one pod is a job", ends((0,), "Completed"))
scenarios.add("one pod that fails is a failed job", ends((7,), "Failed"))
scenarios.add("minSuccess is missed", ends((0, 1, 1), "Failed", minimum=1, success=2))
scenarios.add("minSuccess is just reached", ends((1, 0, 0), "Completed", minimum=1, success=2))


@scenarios
async def min_success_completes_early_and_stops_the_rest(scene: Scene) -> None:
    await scene.running("j", task("a", 3), min_available=1, minSuccess=1)
    await scene.end("j-a-1")
    await scene.phase("j", "Completed")
    left = await scene.pods(1)
    assert left["j-a-1"]["status"]["phase"] == "Succeeded"


@scenarios
async def a_task_below_its_own_minimum_fails_the_job(scene: Scene) -> None:
    await scene.running("j", task("a", 2), task("b", 1))
    for pod, code in (("j-a-0", 0), ("j-a-1", 0), ("j-b-0", 1)):
        await scene.end(pod, code)
    await scene.phase("j", "Failed")


@scenarios
async def a_finished_pod_is_not_made_again(scene: Scene) -> None:
    before = uids(await scene.running("j", task("a", 2), min_available=1))
    await scene.end("j-a-0")
    await scene.phase("j", "Running", succeeded=1)
    await scene.change("j", minAvailable=2)
    await scene.end("j-a-1")
    await scene.phase("j", "Completed", succeeded=2)
    assert uids(await scene.pods(2)) == before


def gives_up(retries: int | None, action: str) -> Scenario:
    """Return the scenario of a job that fails again and again (J37)."""

    async def scenario(scene: Scene) -> None:
        a = task("a", 1, annotations=ending(1))
        spec: Object = {} if retries is None else {"maxRetry": retries}
        await scene.submit("j", a, policies=[on("PodFailed", action)], **spec)
        await scene.phase("j", "Failed", retryCount=retries or 3)
        if action == "RestartJob":  # the last failure is kept to be looked at (J21)
            left = await scene.pods(1)
            assert left["j-a-0"]["status"]["phase"] == "Failed"

    return scenario


for action in ("RestartJob", "RestartTask", "RestartPod"):
    for retries in (1, 2, None):
        scenarios.add(f"{action} gives up after {retries or 'three'}", gives_up(retries, action))


# --- orders ----------------------------------------------------------------------------------

ORDERS = {
    "AbortJob": "Aborted",
    "TerminateJob": "Terminated",
    "CompleteJob": "Completed",
}


def obeys(action: str, phase: str, *, waiting: bool) -> Scenario:
    """Return the scenario of a Command to a job that runs, or waits for room."""

    async def scenario(scene: Scene) -> None:
        if waiting:
            await scene.submit("j", scene.at_home("a", 2))
            await scene.pods(2, phase="Pending")
        else:
            await scene.running("j", task("a", 2))
        await scene.order(action, "j")
        await scene.phase("j", phase)
        await scene.pods(0)
        await scene.groups_gone()
        await scene.event("CommandIssued", about="j", text=action)
        assert await scene.api.items("commands", scene.namespace) == []

    return scenario


for action, phase in ORDERS.items():
    scenarios.add(f"a running job obeys {action}", obeys(action, phase, waiting=False))
    scenarios.add(f"a waiting job obeys {action}", obeys(action, phase, waiting=True))


def resumes(action: str) -> Scenario:
    """Return the scenario of a job that an order stopped or restarted, and that runs again."""

    async def scenario(scene: Scene) -> None:
        before = uids(await scene.running("j", task("a", 2)))
        await scene.order(action, "j")
        if action == "AbortJob":
            await scene.phase("j", "Aborted")
            await scene.order("ResumeJob", "j")
        await scene.phase("j", "Running", retryCount=1)
        after = uids(await scene.pods(2, phase="Running"))
        assert not set(before.values()) & set(after.values())

    return scenario


scenarios.add("an aborted job is resumed", resumes("AbortJob"))
scenarios.add("a running job is restarted by order", resumes("RestartJob"))


def stays(phase: str, action: str) -> Scenario:
    """Return the scenario of an order that comes too late."""

    async def scenario(scene: Scene) -> None:
        await scene.running("j", task("a", 1))
        if phase == "Terminated":
            await scene.order("TerminateJob", "j")
        else:
            await scene.end("j-a-0", 0 if phase == "Completed" else 1)
        before = (await scene.phase("j", phase))["status"].get("version", 0)
        await scene.order(action, "j")

        async def killed_again() -> bool:
            return (await scene.job("j"))["status"].get("version", 0) > before

        await scene.wait(killed_again, "another version (J20)")
        await scene.phase("j", phase)

    return scenario


for phase in ("Completed", "Failed", "Terminated"):
    for action in ("AbortJob", "RestartJob", "ResumeJob"):
        scenarios.add(f"a job that is {phase} stays so after {action}", stays(phase, action))


# --- growing and shrinking -------------------------------------------------------------------


@scenarios
async def a_job_grows_while_it_runs(scene: Scene) -> None:
    before = uids(await scene.running("j", task("a", 2)))
    await scene.scale("j", a=4)
    after = uids(await scene.pods(4, phase="Running"))
    assert set(after) == {f"j-a-{n}" for n in range(4)}
    assert before.items() <= after.items()
    await scene.phase("j", "Running", running=4, minAvailable=4)
    assert (await scene.group("j"))["spec"]["minMember"] == 4


@scenarios
async def a_job_shrinks_while_it_runs(scene: Scene) -> None:
    before = uids(await scene.running("j", task("a", 4)))
    await scene.scale("j", a=1)
    after = uids(await scene.pods(1, phase="Running"))
    assert after == {"j-a-0": before["j-a-0"]}
    await scene.phase("j", "Running", running=1, minAvailable=1)


@scenarios
async def one_task_grows_while_another_shrinks(scene: Scene) -> None:
    await scene.running("j", task("a", 1), task("b", 3))
    await scene.scale("j", a=3, b=1)
    await scene.pods(3, phase="Running", task="a")
    assert set(await scene.pods(1, task="b")) == {"j-b-0"}


@scenarios
async def a_task_shrinks_to_nothing(scene: Scene) -> None:
    await scene.running("j", task("a", 1), task("b", 2))
    await scene.scale("j", b=0)
    assert set(await scene.pods(1, phase="Running")) == {"j-a-0"}
    await scene.end("j-a-0")
    await scene.phase("j", "Completed")


@scenarios
async def a_waiting_job_that_shrinks_begins(scene: Scene) -> None:
    await scene.node("n", cpu="2")
    await scene.submit("j", scene.at_home("a", 3))
    await scene.condition("j", "Unschedulable")
    await scene.scale("j", a=2)
    await scene.phase("j", "Running", running=2)


@scenarios
async def a_job_that_grew_and_shrank_ends_as_any_other(scene: Scene) -> None:
    await scene.running("j", task("a", 1))
    await scene.scale("j", a=3)
    await scene.pods(3, phase="Running")
    await scene.scale("j", a=2)
    for pod in await scene.pods(2, phase="Running"):
        await scene.end(pod)
    await scene.phase("j", "Completed", succeeded=2)


# --- one after the other ---------------------------------------------------------------------


def depends(iteration: str) -> Scenario:
    """Return the scenario of a task that waits for two others (J25)."""

    async def scenario(scene: Scene) -> None:
        slow = task("slow", 1, annotations={"pumice.dev/start-seconds": "3"})
        then = task("then", 1, dependsOn={"name": ["quick", "slow"], "iteration": iteration})
        await scene.submit("j", task("quick", 1), slow, then, min_available=2)
        await scene.pods(1, task="then")
        slow_phase = (await scene.pods(1, task="slow"))["j-slow-0"]["status"]["phase"]
        assert slow_phase == ("Running" if iteration == "all" else "Pending")
        await scene.pods(3, phase="Running")

    return scenario


scenarios.add("a task waits for all that it depends on", depends("all"))
scenarios.add("a task waits for any that it depends on", depends("any"))


@scenarios
async def a_chain_of_tasks_starts_link_by_link(scene: Scene) -> None:
    b = task("b", 1, dependsOn={"name": ["a"]}, annotations=ending(0, 1))
    c = task("c", 1, dependsOn={"name": ["b"]}, annotations=ending(0))
    await scene.submit("j", task("a", 1, annotations=ending(0, 1)), b, c, min_available=1)
    await scene.phase("j", "Completed", succeeded=3)
    pods = await scene.pods(3)
    made = [pods[f"j-{name}-0"]["metadata"]["creationTimestamp"] for name in "abc"]
    assert made == sorted(made)


@scenarios
async def a_task_whose_dependence_failed_is_never_made(scene: Scene) -> None:
    b = task("b", 1, dependsOn={"name": ["a"]})
    a = task("a", 1, annotations=ending(1, 1), policies=[on("PodFailed", "TerminateJob")])
    await scene.submit("j", a, b, min_available=1)
    await scene.phase("j", "Terminated")
    assert set(await scene.pods(1)) == {"j-a-0"}


# --- the end of it ---------------------------------------------------------------------------


def removed(code: int, phase: str) -> Scenario:
    """Return the scenario of a job that goes some time after its end (G01)."""

    async def scenario(scene: Scene) -> None:
        await scene.submit("j", task("a", 1, annotations=ending(code)), ttlSecondsAfterFinished=2)
        await scene.phase("j", phase)
        await scene.gone("jobs", "j")
        await scene.pods(0)

    return scenario


scenarios.add("a completed job goes after its time", removed(0, "Completed"))
scenarios.add("a failed job goes after its time", removed(1, "Failed"))


@scenarios
async def an_aborted_job_does_not_go_by_itself(scene: Scene) -> None:
    await scene.running("j", task("a", 1), ttlSecondsAfterFinished=0)
    await scene.order("AbortJob", "j")
    await scene.phase("j", "Aborted")
    await scene.order("ResumeJob", "j")
    await scene.phase("j", "Running")
    await scene.end("j-a-0")
    await scene.gone("jobs", "j")


@scenarios
async def a_deleted_job_takes_everything_along(scene: Scene) -> None:
    await scene.running("j", task("a", 2), plugins={"svc": [], "ssh": [], "env": []})
    secret = "j-ssh"
    await scene.api.get("secrets", scene.namespace, secret)
    await scene.api.delete("jobs", scene.namespace, "j")
    await scene.gone("jobs", "j")
    await scene.pods(0)
    await scene.groups_gone()
    for plural, name in (("services", "j"), ("configmaps", "j-svc"), ("secrets", secret)):
        await scene.gone(plural, name)


@scenarios
async def a_deleted_pod_without_a_policy_is_made_again(scene: Scene) -> None:
    before = uids(await scene.running("j", task("a", 2)))
    await scene.evict("j-a-0")

    async def anew() -> bool:
        return uids(await scene.pods(2, phase="Running"))["j-a-0"] != before["j-a-0"]

    await scene.wait(anew, "another j-a-0")
    assert uids(await scene.pods(2))["j-a-1"] == before["j-a-1"]


@scenarios
async def the_same_name_again_is_a_new_job(scene: Scene) -> None:
    first = uids(await scene.running("j", task("a", 1)))
    await scene.api.delete("jobs", scene.namespace, "j")
    await scene.gone("jobs", "j")
    again = uids(await scene.running("j", task("a", 1)))
    assert first["j-a-0"] != again["j-a-0"]


@scenarios
async def a_job_says_what_it_went_through(scene: Scene) -> None:
    await scene.submit("j", task("a", 1, annotations=ending(0, 1)))
    job = await scene.phase("j", "Completed")
    assert [c["status"] for c in job["status"]["conditions"]] == ["Pending", "Running", "Completed"]
    assert job["status"]["runningDuration"]
    assert job["status"]["taskStatusCount"]["a"]["phase"] == {"Succeeded": 1}
    assert job["status"]["minAvailable"] == 1
    assert all(pod["status"]["phase"] in FINISHED for pod in (await scene.pods(1)).values())


@scenarios.mark()
async def test_life(playing: Playing, scenario: Scenario) -> None:
    await playing.end_of(scenario)

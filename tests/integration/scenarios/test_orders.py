"""Orders to jobs in each phase, what jobs tell of them and keep through them (J05 to J34)."""

import pytest

from tests.integration.scenarios.playing import Playing, Scenario, Scenarios
from tests.integration.scenarios.scene import Object, Scene, on, task, uids

pytestmark = pytest.mark.asyncio(loop_scope="session")

scenarios = Scenarios()


@scenarios
async def a_resumed_job_goes_on_where_it_was_stopped(scene: Scene) -> None:
    before = uids(await scene.running("j", task("a", 3), min_available=1))
    await scene.end("j-a-0")
    await scene.phase("j", "Running", succeeded=1)
    await scene.order("AbortJob", "j")
    await scene.phase("j", "Aborted", succeeded=1)
    await scene.order("ResumeJob", "j")
    await scene.phase("j", "Running", retryCount=1, succeeded=1, running=2)
    after = uids(await scene.pods(3))
    assert after["j-a-0"] == before["j-a-0"]
    assert not {after["j-a-1"], after["j-a-2"]} & set(before.values())
    await scene.end("j-a-1")
    await scene.end("j-a-2")
    await scene.phase("j", "Completed", succeeded=3)


async def no_orders(scene: Scene) -> bool:
    """Whether all orders have been carried out."""
    return await scene.api.items("commands", scene.namespace) == []


def through(*steps: tuple[str, str], retries: int) -> Scenario:
    """Return the scenario of a job that is ordered about, and where each order leads."""

    async def scenario(scene: Scene) -> None:
        await scene.running("j", task("a", 2), maxRetry=5)
        for action, phase in steps:
            await scene.order(action, "j")
            await scene.wait(lambda: no_orders(scene), "the order is deleted")
            await scene.phase("j", phase)
        job = await scene.phase("j", steps[-1][1], retryCount=retries)
        assert job["status"].get("version", 0) > 0

    return scenario


STOP, GO = ("AbortJob", "Aborted"), ("ResumeJob", "Running")
END = ("TerminateJob", "Terminated")
for name, steps, retries in (
    ("a job is stopped and resumed twice", (STOP, GO, STOP, GO), 2),
    ("a job is stopped twice", (STOP, STOP, GO), 1),
    ("a stopped job is not completed", (STOP, ("CompleteJob", "Aborted")), 0),
    ("a stopped job is not restarted", (STOP, ("RestartJob", "Aborted")), 0),
    ("a terminated job is not resumed", (END, ("ResumeJob", "Terminated")), 0),
):
    scenarios.add(name, through(*steps, retries=retries))


@scenarios
async def a_job_that_waits_for_its_queue_is_stopped_and_resumed(scene: Scene) -> None:
    queue = await scene.queue("small", capability={"cpu": "1"})
    await scene.submit("j", task("a", 2, cpu="1"), queue=queue)
    await scene.phase("j", "Pending")
    await scene.order("AbortJob", "j")
    await scene.phase("j", "Aborted")
    await scene.order("ResumeJob", "j")
    await scene.phase("j", "Pending", retryCount=1)
    await scene.api.patch("queues", "", queue, {"spec": {"capability": {"cpu": "2"}}})
    await scene.phase("j", "Running", running=2)


@scenarios
async def an_order_is_told_with_what_it_did(scene: Scene) -> None:
    await scene.running("j", task("a", 1))
    await scene.order("ResumeJob", "j")
    await scene.event("CommandIssued", about="j", text="Start to execute command ResumeJob")
    await scene.event("ExecuteAction", about="j", text="ResumeJob: stays Running")
    await scene.order("AbortJob", "j")
    await scene.event("ExecuteAction", about="j", text="AbortJob: Running → Aborting")
    await scene.phase("j", "Aborted")


@scenarios
async def an_order_that_nobody_knows_is_warned_of_and_deleted(scene: Scene) -> None:
    before = uids(await scene.running("j", task("a", 1)))
    await scene.order("DanceJob", "j")
    warning = await scene.event("CommandIssued", about="j", text="'DanceJob'")
    assert warning["type"] == "Warning"
    await scene.wait(lambda: no_orders(scene), "the order is deleted")
    assert uids(await scene.pods(1, phase="Running")) == before


@scenarios
async def each_restart_is_told(scene: Scene) -> None:
    await scene.running("j", task("a", 1), policies=[on("PodFailed", "RestartJob")], maxRetry=5)
    for retries in (1, 2):
        await scene.end("j-a-0", 1)
        await scene.phase("j", "Running", retryCount=retries, running=1)

    async def both() -> bool:
        events = await scene.api.items("events", scene.namespace)
        about = [e for e in events if "execute action RestartJob" in e["message"]]
        return len(about) == 2

    await scene.wait(both, "two events ExecuteAction")


def partition(of_task: bool) -> Scenario:
    """Return the scenario of a partition that begins again, and the others that go on."""

    async def scenario(scene: Scene) -> None:
        policies = [on("PodFailed", "RestartPartition")]
        policy = {"totalPartitions": 2, "partitionSize": 2}
        extra: Object = {"policies": policies} if of_task else {}
        a = task("a", 4, partitionPolicy=policy, **extra)
        before = uids(await scene.running("j", a, policies=[] if of_task else policies))
        await scene.end("j-a-3", 2)
        await scene.phase("j", "Running", retryCount=1, running=4)
        after = uids(await scene.pods(4, phase="Running"))
        assert {name for name in before if before[name] != after[name]} == {"j-a-2", "j-a-3"}

    return scenario


scenarios.add("a partition begins again by its task", partition(True))
scenarios.add("a partition begins again by the job", partition(False))


@scenarios.mark()
async def test_order(playing: Playing, scenario: Scenario) -> None:
    await playing.end_of(scenario)

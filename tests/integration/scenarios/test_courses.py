"""Every phase that a job goes through, as a watcher sees it, and what is left of it afterwards."""

import pytest

from tests.integration.scenarios.course import AGAIN, BEGIN, ENDS, watched
from tests.integration.scenarios.playing import Playing, Scenario, Scenarios
from tests.integration.scenarios.scene import Object, Scene, ending, on, task, uids

pytestmark = pytest.mark.asyncio(loop_scope="session")

scenarios = Scenarios()


@scenarios
async def a_pod_is_restarted_and_its_end_is_no_eviction(scene: Scene) -> None:
    policies = [on("PodFailed", "RestartPod"), on("PodEvicted", "TerminateJob", timeout="5m")]
    async with watched(scene, "j") as course:
        await scene.running("j", task("good", 2), task("bad", 1), policies=policies)
        await scene.end("j-bad-0", 127)
        await course.was(*BEGIN, *AGAIN)
        await scene.pods(3, phase="Running")


@scenarios
async def a_job_that_always_fails_shows_every_try(scene: Scene) -> None:
    bad = task("bad", 2, annotations=ending(127, 2))
    async with watched(scene, "j") as course:
        await scene.submit("j", task("good", 2), bad, policies=[on("PodFailed", "RestartJob")])
        await course.was(*BEGIN, *AGAIN, *AGAIN, "Restarting", "Failed", showing=False)
        job = await scene.phase("j", "Failed", retryCount=3)
        assert job["status"]["version"] >= 3


@scenarios
async def pods_that_end_as_they_begin_hide_no_phase(scene: Scene) -> None:
    async with watched(scene, "good") as good, watched(scene, "bad") as bad:
        await scene.submit("good", task("a", 3, annotations=ending(0)))
        fails = task("a", 3, annotations=ending(1))
        spec: Object = {"policies": [on("PodFailed", "RestartJob")], "maxRetry": 2}
        await scene.submit("bad", fails, min_available=1, **spec)
        await good.was(*BEGIN, "Completed", showing=False)
        await bad.was(*BEGIN, *AGAIN, "Restarting", "Failed", showing=False)


@scenarios
async def the_pod_that_failed_last_stays_and_those_that_ran_go(scene: Scene) -> None:
    policies = [on("PodEvicted", "RestartJob"), on("PodFailed", "RestartJob")]
    bad = task("bad", 1, maxRetry=1, annotations=ending(2, 1))
    good = task("good", 1, maxRetry=1)
    await scene.submit("j", good, bad, policies=policies, maxRetry=2, minSuccess=2)
    await scene.phase("j", "Failed", retryCount=2)
    await scene.gone("pods", "j-good-0")
    left = await scene.pods(1)
    assert left["j-bad-0"]["status"]["phase"] == "Failed"


@scenarios
async def the_pod_that_succeeded_stays_and_those_that_ran_go(scene: Scene) -> None:
    policies = [on("PodEvicted", "RestartJob"), on("PodFailed", "RestartJob")]
    done = task("done", 1, maxRetry=1, policies=[on("TaskCompleted", "CompleteJob")])
    async with watched(scene, "j") as course:
        spec: Object = {"policies": policies, "maxRetry": 1, "minSuccess": 2}
        await scene.running("j", task("good", 1, maxRetry=1), done, **spec)
        await scene.end("j-done-0")
        await course.was(*BEGIN, "Completing", "Completed")
        await scene.gone("pods", "j-good-0")
        left = await scene.pods(1)
        assert left["j-done-0"]["status"]["phase"] == "Succeeded"
        assert (await scene.job("j"))["status"].get("retryCount", 0) == 0


@scenarios
async def a_task_restarts_the_job_that_others_would_abort(scene: Scene) -> None:
    bad = task("bad", 2, policies=[on("PodFailed", "RestartJob")])
    async with watched(scene, "j") as course:
        await scene.running("j", task("good", 2), bad, policies=[on("PodFailed", "AbortJob")])
        await scene.end("j-bad-1", 127)
        await course.was(*BEGIN, *AGAIN)
        await scene.end("j-good-1", 127)
        await course.was(*BEGIN, *AGAIN, "Aborting", "Aborted")


# --- pods that take their time ---------------------------------------------------------------

SLOW = {"pumice.dev/stop-seconds": "2"}
VERY_SLOW = {"pumice.dev/stop-seconds": "8"}
"""Long enough to be seen, and for somebody to do something meanwhile."""


def slowly(action: str, *, minimum: int) -> Scenario:
    """Return the scenario of a job whose pods take two seconds to stop."""

    async def scenario(scene: Scene) -> None:
        a, b = task("a", 2, annotations=SLOW), task("b", 1, annotations=SLOW)
        policies = [on("PodFailed", action)]
        async with watched(scene, "j") as course:
            before = uids(await scene.running("j", a, b, min_available=minimum, policies=policies))
            await scene.end("j-a-0", 1)
            await course.was(*BEGIN, *ENDS.get(action, AGAIN))
        if action in ENDS:
            assert set(await scene.pods()) == {"j-a-0"}
            return
        await scene.phase("j", "Running", retryCount=1, terminating=0, running=3)
        after = uids(await scene.pods(3, phase="Running"))
        stay = {"RestartJob": set(), "RestartTask": {"j-b-0"}, "RestartPod": {"j-b-0", "j-a-1"}}
        assert {name for name in after if after[name] == before[name]} == stay[action]

    return scenario


for minimum in (3, 1):
    for action in (*ENDS, "RestartJob", "RestartTask", "RestartPod"):
        scenarios.add(f"{action} of slow pods, {minimum} at least", slowly(action, minimum=minimum))


@scenarios
async def a_pod_is_evicted_when_it_has_stopped_and_not_before(scene: Scene) -> None:
    path = f"/api/v1/namespaces/{scene.namespace}/pods/j-a-0/eviction"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "j-a-0"}}
    async with watched(scene, "j") as course:
        a = task("a", 2, annotations=VERY_SLOW)
        await scene.running("j", a, task("b", 1), policies=[on("PodEvicted", "RestartJob")])
        await scene.api.request("POST", path, eviction)
        await scene.phase("j", "Running", terminating=1, retryCount=0)
        await course.was(*BEGIN, *AGAIN)
        await scene.phase("j", "Running", retryCount=1, version=1)


@scenarios
async def an_order_to_go_on_comes_while_it_still_stops(scene: Scene) -> None:
    async with watched(scene, "j") as course:
        before = uids(await scene.running("j", task("a", 2, annotations=VERY_SLOW)))
        await scene.order("AbortJob", "j")
        await scene.phase("j", "Aborting", terminating=2)
        await scene.order("ResumeJob", "j")
        await course.was(*BEGIN, "Aborting", *AGAIN)
        await scene.phase("j", "Running", retryCount=1, running=2)
        assert set(uids(await scene.pods(2)).values()).isdisjoint(before.values())


@scenarios
async def two_that_fail_at_once_are_one_restart(scene: Scene) -> None:
    async with watched(scene, "j") as course:
        a = task("a", 3, annotations=SLOW)
        before = uids(await scene.running("j", a, policies=[on("PodFailed", "RestartJob")]))
        await scene.end("j-a-0", 1)
        await scene.end("j-a-1", 1)
        await course.was(*BEGIN, *AGAIN)
        await scene.phase("j", "Running", retryCount=1, running=3)
        assert set(uids(await scene.pods(3)).values()).isdisjoint(before.values())


@scenarios
async def a_part_of_a_task_is_restarted_and_the_others_run_on(scene: Scene) -> None:
    parts = {"totalPartitions": 3, "partitionSize": 2, "minPartitions": 2}
    a = task("a", 6, partitionPolicy=parts, policies=[on("PodFailed", "RestartPartition")])
    async with watched(scene, "j") as course:
        before = uids(await scene.running("j", a, min_available=4))
        await scene.end("j-a-3", 1)
        await course.was(*BEGIN, *AGAIN)
        await scene.phase("j", "Running", retryCount=1, version=0, running=6)
        after = uids(await scene.pods(6, phase="Running"))
        assert {name for name in after if after[name] != before[name]} == {"j-a-2", "j-a-3"}


# --- a gang that has lost its place ----------------------------------------------------------


def loses_its_place(action: str) -> Scenario:
    """Return the scenario of a gang of which a pod has gone that finds no place again (J09)."""

    async def scenario(scene: Scene) -> None:
        nodes = [await scene.node(f"n{n}", cpu="2") for n in range(2)]
        kept_out = {"key": "kept", "value": "out", "effect": "NoSchedule"}
        home = {"key": "home", "value": scene.namespace, "effect": "NoSchedule"}
        async with watched(scene, "j") as course:
            await scene.running("j", scene.at_home("a", 4), policies=[on("Unknown", action)])
            for node in nodes:
                await scene.api.patch("nodes", "", node, {"spec": {"taints": [home, kept_out]}})
            await scene.api.delete("pods", scene.namespace, "j-a-0")
            if action == "AbortJob":
                await course.ends(*ENDS[action])
                return
            await course.ends("Restarting", "Pending")
            for node in nodes:
                await scene.api.patch("nodes", "", node, {"spec": {"taints": [home]}})
            await course.ends(*AGAIN)
            assert (await scene.job("j"))["status"]["retryCount"] == 1

    return scenario


scenarios.add("a gang without a place is restarted", loses_its_place("RestartJob"))
scenarios.add("a gang without a place is aborted", loses_its_place("AbortJob"))


# --- orders ----------------------------------------------------------------------------------


@scenarios
async def an_order_to_stop_and_to_go_on_is_seen_step_by_step(scene: Scene) -> None:
    async with watched(scene, "j") as course:
        await scene.running("j", task("a", 3))
        await scene.order("AbortJob", "j")
        await course.was(*BEGIN, "Aborting", "Aborted")
        await scene.order("ResumeJob", "j")
        await course.was(*BEGIN, "Aborting", "Aborted", *AGAIN, showing=False)
        await scene.event("ExecuteAction", about="j", text="ResumeJob")


BESIDE = (
    ("services", "j"),
    ("configmaps", "j-svc"),
    ("networkpolicies", "j"),
)
"""The keys of plugin ssh are no part of it: they stay until the job is deleted (JP3)."""


def stands_down(action: str) -> Scenario:
    """Return the scenario of what plugins made, which goes with the job and comes with it (J21)."""

    async def scenario(scene: Scene) -> None:
        await scene.running("j", task("a", 2), plugins={"svc": [], "ssh": [], "env": []})
        for plural, name in BESIDE:
            await scene.api.get(plural, scene.namespace, name)
        await scene.order(action, "j")
        await scene.phase("j", ENDS[action][-1])
        for plural, name in BESIDE:
            await scene.gone(plural, name)
        if action == "AbortJob":
            await scene.order("ResumeJob", "j")
            await scene.phase("j", "Running", retryCount=1)
            for plural, name in BESIDE:
                await scene.api.get(plural, scene.namespace, name)

    return scenario


for action in ENDS:
    scenarios.add(f"{action} takes what plugins made away", stands_down(action))


# --- deleted in every phase ------------------------------------------------------------------


async def waits(scene: Scene) -> None:
    await scene.submit("j", task("a", 2, cpu="10000"))
    await scene.phase("j", "Pending")


async def runs(scene: Scene) -> None:
    await scene.running("j", task("a", 2))


async def has_completed(scene: Scene) -> None:
    await scene.submit("j", task("a", 2, annotations=ending(0, 1)))
    await scene.phase("j", "Completed")


def has_come_to(action: str, phase: str) -> Scenario:
    async def scenario(scene: Scene) -> None:
        a = task("a", 1, annotations=ending(3, 1))
        await scene.submit("j", a, task("b", 1), policies=[on("PodFailed", action)])
        await scene.phase("j", phase)

    return scenario


def goes(before: Scenario) -> Scenario:
    """Return the scenario of a job that is deleted when it has come so far."""

    async def scenario(scene: Scene) -> None:
        await before(scene)
        await scene.api.delete("jobs", scene.namespace, "j")
        await scene.gone("jobs", "j")
        await scene.groups_gone()
        await scene.pods(0)

    return scenario


scenarios.add("a job that waits is deleted", goes(waits))
scenarios.add("a job that runs is deleted", goes(runs))
scenarios.add("a job that has completed is deleted", goes(has_completed))
scenarios.add("a job that was aborted is deleted", goes(has_come_to("AbortJob", "Aborted")))
scenarios.add(
    "a job that was terminated is deleted", goes(has_come_to("TerminateJob", "Terminated"))
)


@scenarios
async def a_job_without_room_says_so_on_its_group(scene: Scene) -> None:
    await scene.node("n", cpu="2")
    job = await scene.submit("j", scene.at_home("a", 3))
    event = await scene.event("Unschedulable", about=f"j-{job['metadata']['uid']}")
    assert event["lastTimestamp"]
    assert event["involvedObject"]["kind"] == "PodGroup"


@scenarios.mark()
async def test_course(playing: Playing, scenario: Scenario) -> None:
    await playing.end_of(scenario)

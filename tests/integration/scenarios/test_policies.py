"""What lifecycle policies do to a job that runs: every event with every action (J10 to J19).

Each is watched: the phases are all that there were, in order, and show what they are about.
"""

import pytest

from tests.integration.scenarios.course import AGAIN, BEGIN, ENDS, watched
from tests.integration.scenarios.playing import Playing, Scenario, Scenarios
from tests.integration.scenarios.scene import FINISHED, Object, Scene, on, on_exit, task, uids

pytestmark = pytest.mark.asyncio(loop_scope="session")

scenarios = Scenarios()

RESTARTS = {"RestartJob": 1, "RestartTask": 0, "RestartPod": 0}
"""Action → the job's version afterwards: only a kill of the whole job counts it up (J21)."""


class Trigger:
    """Something that happens to the pods of task `a`."""

    def __init__(self, policy: str | int | list[str], code: int | None) -> None:
        self.policy = policy
        self._code = code

    def policies(self, action: str) -> list[Object]:
        """Return the policies that react to it."""
        match self.policy:
            case int(code):
                return [on_exit(code, action)]
            case str(event):
                return [on(event, action)]
            case events:
                return [{"events": events, "action": action}]

    async def happen(self, scene: Scene) -> None:
        """Make it happen."""
        if self.policy == "TaskFailed":
            await scene.crash("j-a-0", 3)
        elif self._code is None:
            await scene.evict("j-a-0")
        elif self.policy == "TaskCompleted":
            await scene.end("j-a-0")
            await scene.end("j-a-1")
        else:
            await scene.end("j-a-0", self._code)

    @property
    def leaves_behind(self) -> int:
        """Pods that have finished, which an end keeps for whoever wants to look at them (J21)."""
        if self._code is None:
            return 0
        return 2 if self.policy == "TaskCompleted" else 1

    def leaves_something(self, action: str) -> bool:
        """Whether there is a pod to kill for an action: an evicted one is gone already."""
        return action != "RestartPod" or self._code is not None or self.policy == "TaskFailed"


TRIGGERS = {
    "a pod fails": Trigger("PodFailed", 3),
    "a pod ends with a code": Trigger(3, 3),
    "a pod is evicted": Trigger("PodEvicted", None),
    "one of several events": Trigger(["PodEvicted", "PodFailed", "PodEvicted"], None),
    "a task completes": Trigger("TaskCompleted", 0),
    "containers crash too often": Trigger("TaskFailed", None),
    "anything happens": Trigger("*", 3),
}


def ends(trigger: Trigger, action: str, *, of_task: bool) -> Scenario:
    """Return the scenario of a policy that ends the job."""

    async def scenario(scene: Scene) -> None:
        policies = trigger.policies(action)
        a = task("a", 2, policies=policies) if of_task else task("a", 2)
        async with watched(scene, "j") as course:
            await scene.running("j", a, task("b", 1), policies=[] if of_task else policies)
            await trigger.happen(scene)
            await course.was(*BEGIN, *ENDS[action])
        job = await scene.job("j")
        assert job["status"].get("retryCount", 0) == 0
        assert job["status"]["version"] >= 1
        await scene.event("ExecuteAction", about="j", text=action)
        left = await scene.pods(trigger.leaves_behind)
        assert all(pod["status"]["phase"] in FINISHED for pod in left.values())
        await scene.groups_gone()

    return scenario


def restarts(trigger: Trigger, action: str, *, of_task: bool) -> Scenario:
    """Return the scenario of a policy that begins again, by pod, by task or as a whole."""

    async def scenario(scene: Scene) -> None:
        policies = trigger.policies(action)
        a = task("a", 2, policies=policies) if of_task else task("a", 2)
        async with watched(scene, "j") as course:
            before = uids(
                await scene.running("j", a, task("b", 1), policies=[] if of_task else policies)
            )
            group = (await scene.group("j"))["metadata"]["uid"]
            await trigger.happen(scene)
            if trigger.policy == "*" and action != "RestartJob":
                # That the gang is broken is one more thing that happens (J09).
                await scene.phase("j", "Running", retryCount=(1, 2))
            else:
                await course.was(*BEGIN, *AGAIN, showing=trigger.leaves_something(action))
                await scene.phase("j", "Running", retryCount=1)
        pods = await scene.pods(3, phase="Running")
        after = uids(pods)
        status = (await scene.job("j"))["status"]
        assert status.get("version", 0) == RESTARTS[action]
        notes = pods["j-a-0"]["metadata"]["annotations"]
        assert notes["volcano.sh/job-version"] == str(RESTARTS[action])
        assert notes["volcano.sh/job-retry-count"] in {"1", "2"}
        is_new = (await scene.group("j"))["metadata"]["uid"] != group
        assert is_new == (action == "RestartJob")
        await scene.event("ExecuteAction", about="j", text=action)
        assert after["j-a-0"] != before["j-a-0"]
        if action == "RestartPod":
            assert after["j-a-1"] == before["j-a-1"]
        else:
            assert after["j-a-1"] != before["j-a-1"]
        assert (after["j-b-0"] != before["j-b-0"]) == (action == "RestartJob")

    return scenario


for when, trigger in TRIGGERS.items():
    for of_task in (False, True):
        whose = "its task" if of_task else "the job"
        for action in ENDS:
            scenarios.add(f"{when}: {action} by {whose}", ends(trigger, action, of_task=of_task))
        for action in RESTARTS:
            if (when, action) != ("a task completes", "RestartPod"):
                scenarios.add(
                    f"{when}: {action} by {whose}", restarts(trigger, action, of_task=of_task)
                )


@scenarios
async def the_policy_of_a_task_comes_before_that_of_the_job(scene: Scene) -> None:
    a = task("a", 1, policies=[on("PodFailed", "CompleteJob")])
    await scene.running("j", a, policies=[on("PodFailed", "AbortJob")])
    await scene.end("j-a-0", 1)
    await scene.phase("j", "Completed")


@scenarios
async def the_policy_of_another_task_says_nothing(scene: Scene) -> None:
    b = task("b", 1, policies=[on("PodFailed", "AbortJob")])
    before = uids(await scene.running("j", task("a", 1), b, min_available=1))
    await scene.end("j-a-0", 1)
    await scene.phase("j", "Running", failed=1, running=1)
    assert uids(await scene.pods(2)) == before


@scenarios
async def another_exit_code_is_none_of_its_business(scene: Scene) -> None:
    await scene.running("j", task("a", 2), min_available=1, policies=[on_exit(3, "AbortJob")])
    await scene.end("j-a-0", 4)
    await scene.phase("j", "Running", failed=1)


@scenarios
async def a_delayed_action_comes_after_its_time(scene: Scene) -> None:
    policies = [on("PodFailed", "AbortJob", timeout="2s")]
    async with watched(scene, "j") as course:
        await scene.running("j", task("a", 2), min_available=1, policies=policies)
        await scene.end("j-a-0", 1)
        await course.was(*BEGIN, *ENDS["AbortJob"])
    assert course.had("Running", failed=1)


@scenarios
async def a_pod_that_stays_pending_too_long_ends_the_job(scene: Scene) -> None:
    a = task("a", 1)
    a["template"]["spec"]["nodeSelector"] = {"nowhere": "ever"}
    await scene.submit("j", a, policies=[on("PodPending", "TerminateJob", timeout="1s")])
    await scene.phase("j", "Terminated")


@scenarios
async def a_pod_that_runs_in_time_is_left_alone(scene: Scene) -> None:
    policies = [on("PodPending", "TerminateJob", timeout="20s")]
    await scene.running("j", task("a", 2), policies=policies)
    await scene.end("j-a-0")
    await scene.end("j-a-1")
    await scene.phase("j", "Completed")


@scenarios
async def containers_that_crash_too_often_fail_their_task(scene: Scene) -> None:
    a = task("a", 1, maxRetry=2)
    a["template"]["spec"]["restartPolicy"] = "OnFailure"
    await scene.running("j", a, task("b", 1), policies=[on("TaskFailed", "TerminateJob")])
    await scene.crash("j-a-0", 2)
    await scene.phase("j", "Terminated")


@scenarios.mark()
async def test_policy(playing: Playing, scenario: Scenario) -> None:
    await playing.end_of(scenario)

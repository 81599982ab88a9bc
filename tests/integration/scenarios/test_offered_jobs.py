"""What the author of a job or a pod is told before it runs: faults by field, defaults (W10 to W32).

The words are those that Volcano's users, and their scripts, look for. Whether a schema or a webhook
says them is all one to a user, so that it is to these stories.
"""

from typing import Any

import pytest

from tests.integration.scenarios.offers import put, refused, taken, whole
from tests.integration.scenarios.playing import Playing, Scenario, Scenarios
from tests.integration.scenarios.scene import Object, Scene, on, on_exit, task
from tests.support.api import ApiError
from tests.support.world import pod

pytestmark = pytest.mark.asyncio(loop_scope="session")

scenarios = Scenarios()

# --- jobs ------------------------------------------------------------------------------------


def a_job(**spec: Any) -> Object:
    """Return a job of one task, with some fields of its spec changed."""
    given = {
        "minAvailable": 1,
        "queue": "default",
        "tasks": [task("one", 1)],
        "policies": [on("PodEvicted", "RestartTask")],
        **spec,
    }
    return whole("jobs", "j", {key: value for key, value in given.items() if value is not None})


def one(**fields: Any) -> list[Object]:
    """Return the tasks of a job of one task, with some fields of that changed."""
    return [{**task("one", 1), **fields}]


AT_LEAST_0 = "should be greater than or equal to 0"
BAD_JOBS: dict[str, tuple[Object, tuple[str, ...]]] = {
    "two tasks of a name": ({"tasks": [task("a", 1), task("a", 1)]}, ("duplicated task name",)),
    "a negative minimum": ({"minAvailable": -1}, ("spec.minAvailable", AT_LEAST_0)),
    "negative retries": ({"maxRetry": -1}, ("spec.maxRetry", AT_LEAST_0)),
    "a negative time to live": (
        {"ttlSecondsAfterFinished": -1},
        ("spec.ttlSecondsAfterFinished", AT_LEAST_0),
    ),
    "no tasks at all": ({"tasks": None}, ("No task specified in job spec",)),
    "negative replicas": ({"tasks": one(replicas=-1)}, ("spec.tasks[0].replicas", AT_LEAST_0)),
    "a negative minimum of a task": (
        {"tasks": one(minAvailable=-1)},
        ("spec.tasks[0].minAvailable", AT_LEAST_0),
    ),
    "a task below its own minimum": (
        {"tasks": one(replicas=3, minAvailable=5)},
        ("'minAvailable' is greater than 'replicas' in task",),
    ),
    "a minimum above all tasks": (
        {"minAvailable": 5},
        ("job 'minAvailable' should not be greater than total replicas",),
    ),
    "a name of a task in capitals": (
        {"tasks": one(name="Task-1")},
        ("spec.tasks[0].name", "should match"),
    ),
    "an event twice": (
        {"policies": [on("PodFailed", "AbortJob"), on("PodFailed", "RestartJob")]},
        ("duplicate",),
    ),
    "an event and an exit code": (
        {"policies": [on("PodFailed", "AbortJob", exitCode=1)]},
        ("must not specify event and exitCode simultaneously",),
    ),
    "neither event nor exit code": (
        {"policies": [{"action": "AbortJob"}]},
        ("either event and exitCode should be specified",),
    ),
    "an action that there is not": (
        {"policies": [on("PodEvicted", "InvalidAction")]},
        ("invalid policy action",),
    ),
    "exit code zero": (
        {"policies": [on_exit(0, "AbortJob")]},
        ("0 is not a valid error code",),
    ),
    "an exit code twice": (
        {"policies": [on_exit(1, "AbortJob"), on_exit(1, "RestartJob")]},
        ("duplicate exitCode",),
    ),
    "any event and another one": (
        {"policies": [on("*", "AbortJob"), on("PodFailed", "RestartJob")]},
        ("if there's * here, no other policy should be here",),
    ),
    "a volume that is mounted nowhere": (
        {"volumes": [{"mountPath": ""}]},
        ("spec.volumes[0].mountPath", "should be at least 1 chars long"),
    ),
    "two volumes in one place": (
        {
            "volumes": [
                {"mountPath": "/var", "volumeClaimName": "a"},
                {"mountPath": "/var", "volumeClaimName": "b"},
            ]
        },
        ("duplicated mountPath",),
    ),
    "a volume of nothing": (
        {"volumes": [{"mountPath": "/var"}]},
        ("either VolumeClaim or VolumeClaimName must be specified",),
    ),
}


def bad_job(spec: Object, words: tuple[str, ...]) -> Scenario:
    """Return the scenario of a job that is refused."""

    async def scenario(scene: Scene) -> None:
        await refused(scene, "jobs", a_job(**spec), *words)

    return scenario


for _name, (_spec, _words) in BAD_JOBS.items():
    scenarios.add(f"a job with {_name} is refused", bad_job(_spec, _words))


def filled(spec: Object, **expected: Any) -> Scenario:
    """Return the scenario of a job that gets what it does not state, and keeps what it states."""

    async def scenario(scene: Scene) -> None:
        made = (await taken(scene, "jobs", a_job(**spec)))["spec"]
        assert {key: made.get(key) for key in expected} == expected

    return scenario


TWO_AND_THREE = [task("a", 2), task("b", 3)]
MPI = ["--master=one", "--worker=one"]
scenarios.add("a job gets the default queue", filled({"queue": None}, queue="default"))
scenarios.add("a job gets a scheduler", filled({}, schedulerName="volcano"))
scenarios.add("a job gets three retries", filled({}, maxRetry=3))
scenarios.add(
    "a job needs all its pods",
    filled({"minAvailable": None, "tasks": TWO_AND_THREE}, minAvailable=5),
)
scenarios.add(
    "a job needs what its tasks need",
    filled(
        {"minAvailable": None, "tasks": [task("a", 2, minAvailable=1), task("b", 3)]},
        minAvailable=4,
    ),
)
for _plugin in ("tensorflow", "pytorch"):
    scenarios.add(
        f"{_plugin} brings svc",
        filled({"plugins": {_plugin: []}}, plugins={_plugin: [], "svc": []}),
    )
scenarios.add(
    "mpi brings svc and ssh",
    filled({"plugins": {"mpi": MPI}}, plugins={"mpi": MPI, "svc": [], "ssh": []}),
)
scenarios.add(
    "a plugin that is stated keeps its words",
    filled(
        {"plugins": {"tensorflow": [], "svc": ["--enable-networking"]}},
        plugins={"tensorflow": [], "svc": ["--enable-networking"]},
    ),
)
scenarios.add(
    "a job may depend on a later task",
    filled({"tasks": [task("t1", 1, dependsOn={"name": ["t2"]}), task("t2", 1)]}, minAvailable=1),
)


@scenarios
async def what_a_job_states_stays(scene: Scene) -> None:
    queue = await scene.queue("own")
    stated = {"minAvailable": 2, "queue": queue, "schedulerName": "another", "maxRetry": 10}
    of_task = {"name": "own", "replicas": 3, "minAvailable": 2, "maxRetry": 5}
    made = (await taken(scene, "jobs", a_job(**stated, tasks=one(**of_task))))["spec"]
    assert {key: made[key] for key in stated} == stated
    assert {key: made["tasks"][0][key] for key in of_task} == of_task


@scenarios
async def a_job_is_scaled_by_its_owner(scene: Scene) -> None:
    made = await taken(scene, "jobs", a_job())
    tasks = [{**made["spec"]["tasks"][0], "replicas": 5}]
    await put(scene, "jobs", "j", minAvailable=3, tasks=tasks)
    await scene.pods(5)


@scenarios
async def a_job_is_not_changed_into_another(scene: Scene) -> None:
    tasks = (await taken(scene, "jobs", a_job()))["spec"]["tasks"]
    too_few = {"minAvailable": 10, "tasks": [{**tasks[0], "replicas": 5}]}
    for change, words in (
        (too_few, "not be greater than total replicas"),
        ({"tasks": [*tasks, task("new", 2)]}, "job updates may not add or remove tasks"),
        ({"queue": "another-queue"}, "job updates may not change fields other than"),
    ):
        with pytest.raises(ApiError, match=words):
            await put(scene, "jobs", "j", **change)


# --- pods ------------------------------------------------------------------------------------

LEAST, MOST_AWAY = "volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable"


BAD_BUDGETS = {
    "of less than nothing": ({LEAST: "-1"}, "must be a positive integer"),
    "of nothing": ({LEAST: "0"}, "must be a positive integer"),
    "of no part": ({MOST_AWAY: "0%"}, "percentage which between 1% ~ 99%"),
    "of the whole": ({MOST_AWAY: "100%"}, "percentage which between 1% ~ 99%"),
    "of words": ({LEAST: "invalid"}, "invalid value"),
    "of two kinds": ({LEAST: "2", MOST_AWAY: "50%"}, "not allow configure multiple annotations"),
}


def bad_budget(annotations: dict[str, str], words: str) -> Scenario:
    """Return the scenario of a pod that is refused, except for another scheduler."""

    async def scenario(scene: Scene) -> None:
        body = pod(cpu="100m")
        body["metadata"]["annotations"] = annotations
        await refused(scene, "pods", body, words)
        body["spec"]["schedulerName"] = "default-scheduler"
        await taken(scene, "pods", body)

    return scenario


def good_budget(annotations: dict[str, str]) -> Scenario:
    """Return the scenario of a pod that runs."""

    async def scenario(scene: Scene) -> None:
        body = pod(cpu="100m")
        body["metadata"]["annotations"] = annotations
        await taken(scene, "pods", body)
        await scene.pods(1, phase="Running")

    return scenario


for _name, (_budget, _word) in BAD_BUDGETS.items():
    scenarios.add(f"a budget {_name} is refused", bad_budget(_budget, _word))
scenarios.add("a pod with a budget in numbers runs", good_budget({LEAST: "2"}))
scenarios.add("a pod with a budget in percent runs", good_budget({MOST_AWAY: "50%"}))
scenarios.add("a pod without a budget runs", good_budget({}))


@scenarios
async def a_pod_of_no_resource_group_stays_as_it_is(scene: Scene) -> None:
    body = pod(cpu="100m", scheduler="default-scheduler", nodeSelector={"a": "b"})
    body["metadata"]["annotations"] = {"volcano.sh/resource-group": "cpu"}
    made = await taken(scene, "pods", body)
    assert made["spec"]["nodeSelector"] == {"a": "b"}
    assert made["spec"]["schedulerName"] == "default-scheduler"
    assert "affinity" not in made["spec"]
    assert made["metadata"]["annotations"] == {"volcano.sh/resource-group": "cpu"}


@scenarios.mark()
async def test_offered(playing: Playing, scenario: Scenario) -> None:
    await playing.end_of(scenario)

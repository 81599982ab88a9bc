"""Jobs before they are stored: defaults, refusals by field, sizes (W10 to W25)."""

import msgspec
import pytest

from services.admission.adapters.server import answer
from services.admission.rules.review import Verdict
from shared.api.batch import Job, JobSpec, TaskSpec, VolumeSpec
from shared.api.lenient import lenient
from shared.jobs.rules import job_problems
from tests.unit.admission.asking import (
    Json,
    ask,
    container,
    paths,
    queue_named,
    sparse_job,
    task,
    template,
)

POD = "spec.tasks[0].template.spec"


def policy(**fields) -> Json:
    return sparse_job(policies=[{"action": "AbortJob", **fields}])


def after(case: Json) -> Json:
    """Return the spec with the patch of the mutating hook applied."""
    spec = dict(case["spec"])
    for operation in ask("/jobs/mutate", case).patch:
        spec[operation["path"].removeprefix("/spec/")] = operation["value"]
    return spec


def test_a_bare_job_gets_every_default_w10() -> None:
    spec = after({"metadata": {"name": "j"}, "spec": {"tasks": [{"replicas": 3, "template": {}}]}})
    assert (spec["queue"], spec["schedulerName"], spec["maxRetry"]) == ("default", "volcano", 3)
    assert spec["minAvailable"] == 3
    (one,) = spec["tasks"]
    assert (one["name"], one["minAvailable"], one["maxRetry"]) == ("default0", 3, 3)


def test_what_is_stated_stays_w11() -> None:
    stated = task("a", 4, minAvailable=2, maxRetry=7, unknown={"of": "later"})
    spec = after(sparse_job(stated, schedulerName="mine", maxRetry=9, minAvailable=1))
    assert spec == {**sparse_job(stated)["spec"], "schedulerName": "mine", "maxRetry": 9,
                    "minAvailable": 1}  # fmt: skip


def test_a_complete_job_is_left_alone_w10() -> None:
    whole = sparse_job(task("a", 1, minAvailable=1, maxRetry=1), schedulerName="s", maxRetry=1)
    whole["spec"]["minAvailable"] = 1
    assert ask("/jobs/mutate", whole).patch == ()


def test_a_pod_on_its_nodes_network_gets_the_dns_policy_of_such_w11() -> None:
    spec = after(template(hostNetwork=True))
    assert spec["tasks"][0]["template"]["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    chosen = after(template(hostNetwork=True, dnsPolicy="None"))
    assert chosen["tasks"][0]["template"]["spec"]["dnsPolicy"] == "None"


@pytest.mark.parametrize(
    ("plugins", "implied"),
    [
        ({"tensorflow": []}, {"svc"}),
        ({"pytorch": []}, {"svc"}),
        ({"ray": []}, {"svc"}),
        ({"mpi": []}, {"svc", "ssh"}),
        ({"env": []}, set()),
    ],
)
def test_a_plugin_brings_those_that_it_needs_w13(plugins: Json, implied: set[str]) -> None:
    assert set(after(sparse_job(plugins=plugins))["plugins"]) == plugins.keys() | implied


def test_arguments_of_an_implied_plugin_stay_w13() -> None:
    stated = {"pytorch": [], "svc": ["--disable-network-policy=true"]}
    assert after(sparse_job(plugins=stated))["plugins"] == stated


def test_minima_follow_the_partitions_when_they_have_some_w12() -> None:
    partitions = {"totalPartitions": 3, "partitionSize": 3, "minPartitions": 2}
    spec = after(sparse_job(task("a", 9, partitionPolicy=partitions)))
    assert (spec["tasks"][0]["minAvailable"], spec["minAvailable"]) == (6, 6)


@pytest.mark.parametrize("spec", [None, [], {"tasks": "many"}, {"tasks": [{"replicas": "two"}]}])
def test_what_cannot_be_read_is_left_to_the_schema_w10(spec: object) -> None:
    assert ask("/jobs/mutate", {"metadata": {"name": "j"}, "spec": spec}) == Verdict()


BAD = {
    "no-tasks": ({"metadata": {"name": "j"}, "spec": {}}, "spec.tasks", "No task specified"),
    "two-tasks-of-one-name": (
        sparse_job(task("a"), task("a")), "spec.tasks[1].name", "duplicated task name a",
    ),
    "two-tasks-that-get-one-name": (
        sparse_job(task("default1"), task("")),
        "spec.tasks[1].name", "duplicated task name default1",
    ),
    "a-task-name-of-dots": (sparse_job(task("a.b")), "spec.tasks[0].name", "no DNS label"),
    "a-job-name-too-long": (sparse_job(name="n" * 64), "metadata.name", "64 letters"),
    "a-pod-name-too-long": (
        sparse_job(task("t" * 30), name="n" * 40), "spec.tasks[0].name", "create pod with name",
    ),
    "negative-replicas": (sparse_job(task("a", -1)), "spec.tasks[0].replicas", "-1 is less than 0"),
    "negative-minimum": (sparse_job(minAvailable=-2), "spec.minAvailable", "-2 is less than 0"),
    "negative-retries": (sparse_job(maxRetry=-1), "spec.maxRetry", "-1 is less than 0"),
    "negative-time-to-live": (
        sparse_job(ttlSecondsAfterFinished=-5), "spec.ttlSecondsAfterFinished", "-5 is less than 0",
    ),
    "more-than-replicas": (
        sparse_job(task("a", 1, minAvailable=2)), "spec.tasks[0].minAvailable",
        "'minAvailable' is greater than 'replicas' in task: a, job: j",
    ),
    "more-than-all": (
        sparse_job(minAvailable=2), "spec.minAvailable",
        "job 'minAvailable' should not be greater than total replicas in tasks",
    ),
    "event-and-exit-code": (
        policy(event="PodFailed", exitCode=3), "spec.policies[0]",
        "must not specify event and exitCode simultaneously",
    ),
    "neither": (policy(), "spec.policies[0]", "either event and exitCode should be specified"),
    "exit-code-0": (
        policy(exitCode=0), "spec.policies[0].exitCode", "0 is not a valid error code",
    ),
    "an-event-of-ours": (
        policy(event="OutOfSync"), "spec.policies[0].event", "invalid policy event",
    ),
    "an-unknown-event": (policy(event="Boom"), "spec.policies[0].event", "'Boom'"),
    "an-unknown-action": (
        policy(event="PodFailed", action="Dance"), "spec.policies[0].action",
        "invalid policy action 'Dance'",
    ),
    "an-action-of-ours": (
        policy(event="PodFailed", action="SyncJob"), "spec.policies[0].action",
        "invalid policy action",
    ),
    "a-timeout": (policy(event="PodFailed", timeout="1 day"), "spec.policies[0].timeout", "10m"),
    "an-event-twice": (
        sparse_job(policies=[{"action": "AbortJob", "event": "PodFailed"},
                      {"action": "RestartJob", "events": ["PodEvicted", "PodFailed"]}]),
        "spec.policies[1]", "duplicate event PodFailed",
    ),
    "an-exit-code-twice": (
        sparse_job(policies=[{"action": "AbortJob", "exitCode": 1}] * 2),
        "spec.policies[1]", "duplicate exitCode 1",
    ),
    "any-and-another": (
        sparse_job(task(policies=[{"action": "AbortJob", "event": "*"},
                           {"action": "RestartJob", "event": "PodFailed"}])),
        "spec.tasks[0].policies", "if there's * here, no other policy should be here",
    ),
    "no-mount-path": (
        sparse_job(volumes=[{"mountPath": ""}]),
        "spec.volumes[0].mountPath", "mountPath is required",
    ),
    "a-mount-path-twice": (
        sparse_job(volumes=[{"mountPath": "/a", "volumeClaimName": "b"}] * 2),
        "spec.volumes[1].mountPath", "duplicated mountPath: /a",
    ),
    "no-claim": (
        sparse_job(volumes=[{"mountPath": "/a"}]), "spec.volumes[0]",
        "either VolumeClaim or VolumeClaimName must be specified",
    ),
    "two-claims": (
        sparse_job(volumes=[{"mountPath": "/a", "volumeClaimName": "b", "volumeClaim": {}}]),
        "spec.volumes[0]", "conflict",
    ),
    "an-odd-claim": (
        sparse_job(volumes=[{"mountPath": "/a", "volumeClaimName": "B_"}]),
        "spec.volumes[0].volumeClaimName", "invalid VolumeClaimName B_",
    ),
    "an-unknown-plugin": (
        sparse_job(plugins={"big_plugin": []}), "spec.plugins.big_plugin",
        "unable to find job plugin: big_plugin: there are env,",
    ),
    "an-unread-argument": (
        sparse_job(plugins={"svc": ["--inject-hosts-env=maybe"]}),
        "spec.plugins.svc", "neither true nor",
    ),
    "hosts-that-no-process-takes": (
        sparse_job(task("a-worker-task", 2000), name="j" * 40, plugins={"svc": []}),
        "spec.plugins.svc", "add --inject-hosts-env=false",
    ),
    "hosts-that-no-config-map-holds": (
        sparse_job(task("a-worker-task", 9000), name="j" * 40,
                   plugins={"svc": ["--inject-hosts-env=false"]}),
        "spec.plugins.svc", "1048576 are the most",
    ),
    "mpi-without-its-master": (
        sparse_job(plugins={"mpi": ["--master=boss"]}), "spec.plugins.mpi",
        "The specified mpi master task was not found",
    ),
    "an-unknown-dependency": (
        sparse_job(task(dependsOn={"name": ["x"]})), "spec.tasks[0].dependsOn.name",
        "doesn't form a directed acyclic graph(DAG)",
    ),
    "a-circle": (
        sparse_job(task("a", dependsOn={"name": ["b"]}), task("b", dependsOn={"name": ["a"]})),
        "spec.tasks[0].dependsOn.name", "in a circle over a, b",
    ),
    "itself": (
        sparse_job(task("a", dependsOn={"name": ["a"]})),
        "spec.tasks[0].dependsOn.name", "circle over a",
    ),
    "no-partitions": (
        sparse_job(task("a", 4, partitionPolicy={"totalPartitions": 0, "partitionSize": 2})),
        "spec.tasks[0].partitionPolicy.totalPartitions",
        "'TotalPartitions' must be greater than 0 in task: a, job: j",
    ),
    "partitions-of-nothing": (
        sparse_job(task("a", 4, partitionPolicy={"totalPartitions": 2, "partitionSize": -1})),
        "spec.tasks[0].partitionPolicy.partitionSize",
        "'PartitionSize' must be greater than 0 in task: a, job: j",
    ),
    "partitions-that-do-not-add-up": (
        sparse_job(task("a", 5, partitionPolicy={"totalPartitions": 2, "partitionSize": 2})),
        "spec.tasks[0].partitionPolicy",
        "'Replicas' are not equal to TotalPartitions*PartitionSize",
    ),
    "minimum-beside-the-partitions": (
        sparse_job(task("a", 4, minAvailable=3, partitionPolicy={
            "totalPartitions": 2, "partitionSize": 2, "minPartitions": 1})),
        "spec.tasks[0].partitionPolicy.minPartitions",
        "'MinAvailable' is not equal to MinPartitions*PartitionSize",
    ),
    "a-tier-named-twice": (
        sparse_job(networkTopology={"highestTierAllowed": 1, "highestTierName": "rack"}),
        "spec.networkTopology", "must not specify 'highestTierAllowed' and 'highestTierName'",
    ),
    "no-containers": (template(containers=[]), f"{POD}.containers", "at least one container"),
    "no-image": (
        template(containers=[{"name": "main"}]), f"{POD}.containers[0].image",
        "spec.tasks[0].template.spec.containers[0].image: Required value",
    ),
    "a-container-twice": (
        template(containers=[{"name": "a", "image": "b"}] * 2), f"{POD}.containers[1].name",
        'Duplicate value: "a"',
    ),
    "a-container-of-capitals": (
        template(containers=[{"name": "Main", "image": "b"}]), f"{POD}.containers[0].name", "Main",
    ),
    "no-restart-policy-of-pods": (
        template(restartPolicy="Sometimes"), f"{POD}.restartPolicy",
        'Unsupported value: "Sometimes"',
    ),
    "a-port": (
        container(ports=[{"containerPort": 70000}]), f"{POD}.containers[0].ports[0].containerPort",
        "between 1 and 65535",
    ),
    "a-variable": (
        container(env=[{"name": "a=b"}]), f"{POD}.containers[0].env[0].name",
        "environment variable",
    ),
    "a-mount-of-nothing": (
        container(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
        f"{POD}.containers[0].volumeMounts[0].name", 'Not found: "v"',
    ),
    "no-quantity": (
        container(resources={"requests": {"cpu": "lots"}}),
        f"{POD}.containers[0].resources.requests.cpu", "is no quantity",
    ),
    "less-than-nothing": (
        container(resources={"limits": {"memory": "-1Gi"}}),
        f"{POD}.containers[0].resources.limits.memory", "less than 0",
    ),
    "more-than-its-limit": (
        container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
        f"{POD}.containers[0].resources.requests.cpu",
        'Invalid value: "2": must be less than or equal to cpu limit of 1',
    ),
    "a-form": (template(containers="main"), f"{POD}.containers", "expected array"),
    "half-a-cpu": (
        sparse_job(task(topologyPolicy="restricted", template={"spec": {"containers": [
            {"name": "m", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]}})),
        f"{POD}.containers[0].resources.requests.cpu", "the cpu request isn't an integer",
    ),
    "of-another-type": (
        sparse_job(task("a", "two")), "spec.tasks[0].replicas", "expected int, got str",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_job_is_refused_with_its_field_and_the_reason_w20_w21_w22_w23_w25(case: str) -> None:
    stated, path, words = BAD[case]
    verdict = ask("/jobs/validate", stated)
    assert not verdict.allowed
    assert path in paths(verdict)
    assert f"{path}: " in verdict.message
    assert words in verdict.message


def test_words_that_a_plugin_does_not_know_are_let_through_with_a_hint_w23() -> None:
    verdict = ask(
        "/jobs/validate", sparse_job(plugins={"svc": ["--enable-networking"], "env": ["on"]})
    )
    assert verdict.allowed
    of_env, of_svc = sorted(verdict.hints)
    assert of_env == "spec.plugins.env: 'on' has no effect, the plugin takes no arguments"
    assert "spec.plugins.svc: '--enable-networking' has no effect" in of_svc
    assert "--publish-not-ready-addresses" in of_svc
    assert msgspec.json.decode(answer("u", verdict))["response"]["warnings"] == list(verdict.hints)


def test_all_faults_of_a_job_are_told_at_once_w20() -> None:
    verdict = ask("/jobs/validate", sparse_job(task("a"), task("a"), minAvailable=9, queue="nope"))
    assert paths(verdict) == ["spec.tasks[1].name", "spec.minAvailable", "spec.queue"]
    assert verdict.message.endswith(";")


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        ("root", "can not submit job to root queue"),
        ("nope", 'unable to find job queue: queue.scheduling.volcano.sh "nope" not found'),
        ("shut", "queue `shut` status is `Closed`"),
        ("parent", "can only submit job to leaf queue, queue `parent` has 1 child queues"),
    ],
)
def test_a_job_needs_an_open_leaf_for_a_queue_w24(queue: str, words: str) -> None:
    known = [
        queue_named("root"),
        queue_named("shut", state="Closed"),
        queue_named("parent"),
        queue_named("leaf", parent="parent"),
    ]
    verdict = ask("/jobs/validate", sparse_job(queue=queue), queues=known)
    assert paths(verdict) == ["spec.queue"]
    assert words in verdict.message
    assert ask("/jobs/validate", sparse_job(queue="leaf"), queues=known).allowed


def test_a_job_of_the_default_queue_need_not_wait_until_the_controller_has_made_it_w24() -> None:
    assert ask("/jobs/validate", sparse_job(), queues=[queue_named("root")]).allowed


def test_a_queue_that_was_just_made_is_open_w24() -> None:
    assert ask("/jobs/validate", sparse_job(), queues=[queue_named("default", state="")]).allowed


def test_a_job_whose_name_is_still_to_be_made_up_is_admitted_w22() -> None:
    stated = sparse_job()
    stated["metadata"] = {"generateName": "run-", "namespace": "ns"}
    assert ask("/jobs/validate", stated).allowed


def test_a_variable_may_have_any_name_that_the_api_server_takes_w22() -> None:
    assert ask("/jobs/validate", container(env=[{"name": "1 x.y-z"}])).allowed


def test_requests_of_a_whole_pod_cover_its_containers_w22() -> None:
    parts = [{"name": n, "image": "i", "resources": {"requests": {"cpu": "2"}}} for n in "ab"]
    short = template(containers=parts, resources={"requests": {"cpu": "3"}})
    verdict = ask("/jobs/validate", short)
    assert "must be greater than or equal to aggregate container requests of 4" in verdict.message
    enough = template(containers=parts, resources={"requests": {"cpu": "4"}})
    assert ask("/jobs/validate", enough).allowed


@pytest.mark.parametrize("path", ["/jobs/mutate", "/jobs/validate"])
def test_an_operation_that_no_hook_is_made_for_is_refused_w01(path: str) -> None:
    assert "CONNECT" in ask(path, sparse_job(), operation="CONNECT").message


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("stated", "words"),
    [
        (template(volumes=[{"name": f"v{n}"} for n in range(40_000)]), ""),
        (template(containers=[{"name": f"c{n}", "image": "i"} for n in range(30_000)]), ""),
        (
            container(volumeMounts=[{"name": "v", "mountPath": f"/{n}"} for n in range(40_000)]),
            'Not found: "v"',
        ),
        (
            sparse_job(*[task(f"t{n}", dependsOn={"name": [f"t{n + 1}"]}) for n in range(6000)]),
            "no task 't6000' in this job",
        ),
        (
            sparse_job(policies=[{"event": "PodFailed", "action": "AbortJob"}] * 40_000),
            "duplicate event PodFailed",
        ),
    ],
    ids=["volumes", "containers", "mounts", "dependencies", "policies"],
)
def test_the_largest_objects_are_judged_while_the_caller_waits_w20(
    stated: Json, words: str
) -> None:
    """One process answers for the cluster: what takes the square of its size stops all others."""
    verdict = ask("/jobs/validate", stated)
    assert verdict.allowed is not bool(words)
    assert words in verdict.message


@pytest.mark.parametrize(
    "stated",
    [
        sparse_job(plugins={"p" * 1_000_000: []}),
        container(image="", name="c" * 1_000_000),
        sparse_job(
            *[task(f"t{n}", dependsOn={"name": [f"t{(n + 1) % 2000}"]}) for n in range(2000)]
        ),
    ],
    ids=["a path", "a value", "a circle"],
)
def test_a_fault_is_told_in_a_sentence_however_long_what_it_is_about_w20(stated: Json) -> None:
    """The controller writes it into the job's status, which must not outgrow the API server."""
    problems = job_problems(lenient(stated, Job))
    assert problems
    for problem in problems:
        assert len(str(problem)) <= 1024


def test_of_a_large_circle_some_tasks_are_named_w25() -> None:
    around = [task(f"t{n}", dependsOn={"name": [f"t{(n + 1) % 20}"]}) for n in range(20)]
    message = ask("/jobs/validate", sparse_job(*around)).message
    assert "in a circle over t0, t1, t2, t3, t4, t5, t6, t7, t8, t9 and 10 more: job has" in message


@pytest.mark.parametrize("levels", [101, 400, 2000])
def test_a_template_nested_without_end_is_held_by_the_controller_too_w22(levels: int) -> None:
    nested = msgspec.Raw(b'{"a":' * levels + b"1" + b"}" * levels)
    read = msgspec.json.decode(msgspec.json.encode({"metadata": {"name": "j"}}), type=Job)
    spec = JobSpec(
        tasks=(TaskSpec(name="a", replicas=1, template=nested),),
        volumes=(VolumeSpec(mount_path="/a", volume_claim=nested),),
    )
    found = job_problems(msgspec.structs.replace(read, spec=spec))
    assert {problem.path for problem in found} == {
        "spec.tasks[0].template",
        "spec.volumes[0].volumeClaim",
    }

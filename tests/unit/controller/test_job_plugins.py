"""The job plugins beyond env and svc (JP3 to JP9): what each makes of a job and what it refuses."""

import base64
import json
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from services.controller.adapters.companions import key_pair
from services.controller.job import sync
from services.controller.job.podtemplate import PodBuilder
from services.controller.job.validate import problems
from shared.api import kinds
from shared.api.batch import Job
from shared.jobplugins import ssh
from shared.jobplugins.catalogue import PLUGINS
from shared.jobplugins.interface import Companion
from shared.jobs.defaults import defaulted
from tests.support.structs import job
from tests.unit.controller.world import task

MASTER_AND_WORKERS = (task("master", 1), task("worker", 2))


def whole(*tasks: dict[str, Any], plugins: dict[str, list[str]], name: str = "train") -> Job:
    """Return a job as the controller works with it."""
    plain = job(*tasks, plugins=plugins)
    plain = msgspec.structs.replace(
        plain, metadata=msgspec.structs.replace(plain.metadata, name=name)
    )
    return defaulted(plain, scheduler_name="volcano")


def built_pod(of: Job, task_name: str, index: int) -> dict[str, Any]:
    spec = next(t for t in of.spec.tasks if t.name == task_name)
    made: dict[str, Any] = json.loads(PodBuilder(of, spec).body(index))
    return made


def env(of: Job, task_name: str, index: int) -> dict[str, str]:
    """Return the literal environment of the first container."""
    entries = built_pod(of, task_name, index)["spec"]["containers"][0].get("env", ())
    return {entry["name"]: entry["value"] for entry in entries if "value" in entry}


def ports(of: Job, task_name: str, index: int) -> dict[str, int]:
    declared = built_pod(of, task_name, index)["spec"]["containers"][0].get("ports", ())
    return {port["name"]: port["containerPort"] for port in declared}


def secret(of: Job) -> Companion:
    return next(c for c in sync.companions(of) if c.kind is kinds.SECRET)


def text(companion: Companion, file: str) -> str:
    return base64.b64decode(companion.body["data"][file]).decode()


@pytest.mark.parametrize(
    ("plugin", "implied"),
    [
        ("tensorflow", {"svc"}),
        ("pytorch", {"svc"}),
        ("ray", {"svc"}),
        ("mpi", {"svc", "ssh"}),
        ("hcclrank", set()),
    ],
)
def test_a_framework_brings_the_plugins_that_it_needs_jp9(plugin: str, implied: set[str]) -> None:
    full = whole(task("master", 1), plugins={plugin: []})
    assert set(full.spec.plugins) == {plugin} | implied


def test_what_the_user_says_of_an_implied_plugin_stays_jp9() -> None:
    full = whole(task("master", 1), plugins={"mpi": [], "ssh": ["--ssh-port=2222"]})
    assert full.spec.plugins["ssh"] == ("--ssh-port=2222",)


def test_the_status_names_the_plugins_but_hcclrank_jp8() -> None:
    full = whole(task("master", 1), plugins={name: [] for name in PLUGINS})
    assert sync.marks(full) == {f"plugin-{n}": n for n in sorted(PLUGINS) if n != "hcclrank"}


@pytest.mark.parametrize(
    ("arguments", "path", "mode"),
    [
        pytest.param([], "/root/.ssh", 0o600, id="root"),
        pytest.param(["--ssh-key-file-path=/home/u/.ssh"], "/home/u/.ssh", 0o644, id="elsewhere"),
        pytest.param(["--no-root=true"], "/root/.ssh", 0o600, id="flag-of-old"),
    ],
)
def test_ssh_mounts_its_files_into_every_container_jp3(
    arguments: list[str], path: str, mode: int
) -> None:
    plain = task("a", 1)
    plain["template"]["spec"]["initContainers"] = [{"name": "init", "image": "busybox"}]
    spec = built_pod(whole(plain, plugins={"ssh": arguments}), "a", 0)["spec"]
    volume = spec["volumes"][0]
    assert volume["name"] == "train-ssh"
    assert volume["secret"]["secretName"] == "train-ssh"
    assert volume["secret"]["defaultMode"] == mode
    assert [(i["key"], i["path"]) for i in volume["secret"]["items"]] == [
        ("id_rsa", ".ssh/id_rsa"),
        ("id_rsa.pub", ".ssh/id_rsa.pub"),
        ("authorized_keys", ".ssh/authorized_keys"),
        ("config", ".ssh/config"),
    ]
    mount = {"name": "train-ssh", "mountPath": path, "subPath": ".ssh"}
    for group in ("containers", "initContainers"):
        assert spec[group][0]["volumeMounts"] == [mount]


def test_the_ssh_secret_waits_for_keys_and_is_never_written_again_jp3() -> None:
    found = secret(whole(task("a", 2), plugins={"ssh": []}))
    assert found.name == "train-ssh"
    assert found.once
    assert found.sealed
    assert found.needs_key_pair
    assert set(found.body["data"]) == {"config"}
    filled = ssh.with_keys(found.body, ssh.KeyPair(private="p", public="q"))
    assert set(filled["data"]) == set(ssh.FILES)
    assert filled["data"]["authorized_keys"] == filled["data"]["id_rsa.pub"]


def test_keys_of_the_user_are_taken_as_they_are_jp3() -> None:
    arguments = ["--ssh-private-key=secret", "--ssh-public-key=ssh-rsa AAAA"]
    found = secret(whole(task("a", 1), plugins={"ssh": arguments}))
    assert not found.needs_key_pair
    assert text(found, "id_rsa") == "secret"
    assert text(found, "id_rsa.pub") == text(found, "authorized_keys") == "ssh-rsa AAAA"


def test_the_files_of_hosts_are_called_as_the_variables_are_jp2() -> None:
    """A shell's variables have no hyphens, and Volcano calls the files alike."""
    full = whole(task("my-ps", 2), task("w", 1), plugins={"svc": []})
    (hosts,) = [c for c in sync.companions(full) if c.kind is kinds.CONFIGMAP]
    assert hosts.body["data"] == {
        "VC_MY_PS_HOSTS": "train-my-ps-0.train,train-my-ps-1.train",
        "VC_MY_PS_NUM": "2",
        "VC_W_HOSTS": "train-w-0.train",
        "VC_W_NUM": "1",
        "my_ps.host": "train-my-ps-0.train\ntrain-my-ps-1.train",
        "w.host": "train-w-0.train",
    }


@pytest.mark.parametrize(("arguments", "port"), [([], 22), (["--ssh-port=2222"], 2222)])
def test_the_ssh_configuration_knows_every_pod_jp3(arguments: list[str], port: int) -> None:
    named = task("b", 2)
    named["template"]["spec"] |= {"hostname": "fixed", "subdomain": "sub"}
    found = secret(whole(task("a", 2), named, plugins={"ssh": arguments}))
    assert text(found, "config").splitlines() == [
        "StrictHostKeyChecking no",
        "UserKnownHostsFile /dev/null",
        "Host train-a-0",
        "  HostName train-a-0.train",
        f"  Port {port}",
        "Host train-a-1",
        "  HostName train-a-1.train",
        f"  Port {port}",
        "Host fixed",
        "  HostName fixed.sub",
        f"  Port {port}",
    ]


def test_a_key_pair_costs_next_to_nothing_to_make_and_fits_together_jp3() -> None:
    """RSA takes 40 ms and more of the process for each job that asks for keys."""
    pair = key_pair()
    key = serialization.load_ssh_private_key(pair.private.encode(), password=None)
    assert isinstance(key, Ed25519PrivateKey)
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    assert pair.public == f"{public.decode()}\n"
    assert pair.private != key_pair().private


@pytest.mark.parametrize(
    ("task_name", "index", "place"),
    [
        ("myps", 0, {"type": "ps", "index": 0}),
        ("mywk", 1, {"type": "worker", "index": 1}),
        ("boss", 0, {"type": "chief", "index": 0}),
        ("other", 3, {"type": "other", "index": 3}),
    ],
)
def test_tensorflow_tells_each_pod_the_cluster_and_its_place_jp4(
    task_name: str, index: int, place: dict[str, Any]
) -> None:
    full = whole(
        task("myps", 1), task("mywk", 2), task("boss", 1), task("other", 4),
        plugins={"tensorflow": ["--ps=myps", "--worker=mywk", "--chief", "boss", "--port=5000"]},
    )  # fmt: skip
    assert json.loads(env(full, task_name, index)["TF_CONFIG"]) == {
        "cluster": {
            "ps": ["train-myps-0.train:5000"],
            "worker": ["train-mywk-0.train:5000", "train-mywk-1.train:5000"],
            "chief": ["train-boss-0.train:5000"],
        },
        "task": place,
    }


def test_tensorflow_leaves_a_job_of_one_pod_alone_jp4() -> None:
    assert "TF_CONFIG" not in env(whole(task("a", 1), plugins={"tensorflow": []}), "a", 0)


def test_tensorflow_speaks_after_the_template_jp4() -> None:
    plain = task("worker", 2)
    plain["template"]["spec"]["containers"][0]["env"] = [{"name": "TF_CONFIG", "value": "mine"}]
    made = built_pod(whole(plain, plugins={"tensorflow": []}), "worker", 1)
    entries = [e for e in made["spec"]["containers"][0]["env"] if e["name"] == "TF_CONFIG"]
    assert entries[0]["value"] == "mine"
    assert json.loads(entries[1]["value"])["task"] == {"type": "worker", "index": 1}


@pytest.mark.parametrize(
    ("task_name", "index", "rank"), [("master", 0, "0"), ("worker", 0, "1"), ("worker", 1, "2")]
)
def test_pytorch_gives_every_member_its_rank_jp5(task_name: str, index: int, rank: str) -> None:
    full = whole(*MASTER_AND_WORKERS, task("watcher", 5), plugins={"pytorch": []})
    seen = env(full, task_name, index)
    assert {k: seen[k] for k in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")} == {
        "MASTER_ADDR": "train-master-0.train",
        "MASTER_PORT": "23456",
        "WORLD_SIZE": "3",
        "RANK": rank,
    }
    assert ports(full, task_name, index) == {"pytorchjob-port": 23456}


def test_pytorch_gives_no_rank_to_who_takes_no_part_jp5() -> None:
    full = whole(*MASTER_AND_WORKERS, task("watcher", 1), plugins={"pytorch": []})
    seen = env(full, "watcher", 0)
    assert seen["WORLD_SIZE"] == "3"
    assert "RANK" not in seen


def test_pytorch_without_a_master_changes_nothing_jp5() -> None:
    full = whole(task("worker", 2), plugins={"pytorch": ["--wait-master-enabled"]})
    assert not {"MASTER_ADDR", "RANK"} & env(full, "worker", 0).keys()
    assert not ports(full, "worker", 0)


@pytest.mark.parametrize(
    ("arguments", "task_name", "waits"),
    [
        pytest.param([], "worker", False, id="not-asked"),
        pytest.param(["--wait-master-enabled=true"], "worker", True, id="worker"),
        pytest.param(["--wait-master-enabled=true"], "master", False, id="master"),
    ],
)
def test_a_pytorch_worker_waits_for_its_master_on_request_jp5(
    arguments: list[str], task_name: str, waits: bool
) -> None:
    full = whole(
        *MASTER_AND_WORKERS,
        plugins={"pytorch": [*arguments, "--wait-master-timeout=60", "--wait-master-image=a:1"]},
    )
    init = built_pod(full, task_name, 0)["spec"].get("initContainers", [])
    assert [(each["name"], each["image"]) for each in init] == [("wait-for-master", "a:1")] * waits
    assert all(
        "train-master-0.train 23456" in each["command"][2] and "60" in each["command"][2]
        for each in init
    )


def test_a_waiter_of_the_template_is_left_alone_jp5() -> None:
    plain = task("worker", 2)
    plain["template"]["spec"]["initContainers"] = [{"name": "wait-for-master", "image": "own"}]
    full = whole(task("master", 1), plain, plugins={"pytorch": ["--wait-master-enabled"]})
    init = built_pod(full, "worker", 0)["spec"]["initContainers"]
    assert [each["image"] for each in init] == ["own"]


def test_mpi_names_the_workers_to_the_master_only_jp6() -> None:
    full = whole(*MASTER_AND_WORKERS, plugins={"mpi": []})
    assert env(full, "master", 0)["MPI_HOST"] == "train-worker-0.train,train-worker-1.train"
    assert "MPI_HOST" not in env(full, "worker", 0)
    assert ports(full, "master", 0) == ports(full, "worker", 1) == {"mpijob-port": 22}


def test_mpi_leaves_a_port_that_is_open_alone_jp6() -> None:
    plain = task("master", 1)
    plain["template"]["spec"]["containers"][0]["ports"] = [{"name": "s", "containerPort": 2222}]
    full = whole(plain, task("worker", 1), plugins={"mpi": ["--port=2222"]})
    assert ports(full, "master", 0) == {"s": 2222}


def test_ray_starts_a_head_and_workers_that_join_it_jp7() -> None:
    head, worker = task("head", 1), task("worker", 2)
    head["template"]["spec"]["containers"][0]["name"] = "head"
    worker["template"]["spec"]["containers"][0]["name"] = "worker"
    worker["template"]["spec"]["containers"].append({"name": "side", "command": ["own"]})
    full = whole(head, worker, plugins={"ray": []})
    started = (
        "ray start --head --block --dashboard-host=0.0.0.0 --port=6379 --dashboard-port=8265 "
        "--ray-client-server-port=10001"
    )
    command = built_pod(full, "head", 0)["spec"]["containers"][0]["command"]
    assert command == ["sh", "-c", started]
    assert ports(full, "head", 0) == {"gcs": 6379, "dashboard": 8265, "client-server": 10001}
    joined, side = built_pod(full, "worker", 1)["spec"]["containers"]
    assert joined["command"] == [
        "sh", "-c", "ray start --block --address=train-head-0.train:6379",
    ]  # fmt: skip
    assert side["command"] == ["own"]
    assert not ports(full, "worker", 1)


def test_the_head_of_ray_has_a_service_jp7() -> None:
    full = whole(task("head", 1), plugins={"ray": ["--dashboardPort=9"]})
    service = next(c for c in sync.companions(full) if c.name == "train-head-svc")
    assert service.kind is kinds.SERVICE
    assert service.body["spec"]["selector"] == {
        "volcano.sh/job-name": "train",
        "volcano.sh/job-namespace": "ns",
        "volcano.sh/task-spec": "head",
    }
    assert [(p["name"], p["port"], p["targetPort"]) for p in service.body["spec"]["ports"]] == [
        ("gcs", 6379, "gcs"),
        ("dashboard", 9, "dashboard"),
        ("client-server", 10001, "client-server"),
    ]


@pytest.mark.parametrize(
    ("task_name", "index", "plugins", "rank"),
    [
        pytest.param("master", 1, {"hcclrank": []}, "1", id="master"),
        pytest.param("worker", 0, {"hcclrank": []}, "2", id="worker-after-masters"),
        pytest.param("worker", 0, {"hcclrank": [], "pytorch": []}, "1", id="rank-of-pytorch"),
        pytest.param("other", 0, {"hcclrank": []}, None, id="neither"),
        pytest.param("other", 0, {"hcclrank": ["--worker=other"]}, "2", id="renamed"),
        pytest.param("own", 0, {"hcclrank": []}, "7", id="annotated-in-the-template"),
    ],
)
def test_hcclrank_annotates_the_rank_jp8(
    task_name: str, index: int, plugins: dict[str, list[str]], rank: str | None
) -> None:
    own = task("own", 1)
    own["template"]["metadata"] = {"annotations": {"hccl/rankIndex": "7"}}
    full = whole(task("master", 2), task("worker", 2), task("other", 1), own, plugins=plugins)
    annotations = built_pod(full, task_name, index)["metadata"]["annotations"]
    assert annotations.get("hccl/rankIndex") == rank


@pytest.mark.parametrize(
    ("plugin", "arguments", "said"),
    [
        ("mpi", ["--master=boss"], "spec.plugins.mpi: the job has no task 'boss' (--master)"),
        ("ray", [], "spec.plugins.ray: the job has no task 'head' (--head)"),
        ("pytorch", ["--port=0"], "--port=0 is no whole number above 0"),
        ("pytorch", ["--port=-1"], "--port=-1 is no whole number above 0"),
        ("tensorflow", ["--port=65536"], "--port=65536 is no port"),
        ("pytorch", ["--wait-master-timeout=soon"], "no whole number above 0"),
        ("ssh", ["--ssh-private-key=p"], "--ssh-private-key and --ssh-public-key go together"),
        ("ssh", ["--ssh-key-file-path=home"], "--ssh-key-file-path begins with a slash"),
        ("ssh", ["--ssh-port=x"], "--ssh-port=x is no whole number above 0"),
        ("hcclrank", ["--odd", "--master"], "spec.plugins.hcclrank: --master needs a value"),
    ],
)
def test_what_a_plugin_cannot_work_with_is_said_w23(
    plugin: str, arguments: list[str], said: str
) -> None:
    found = problems(whole(task("master", 1), plugins={plugin: arguments}))
    assert len(found) == 1, found
    assert said in found[0]


@pytest.mark.parametrize(
    ("plugin", "name", "said"),
    [
        ("ssh", "a" * 60, "metadata.name: plugin ssh makes a volume"),
        ("ssh", "a.b", "metadata.name: plugin ssh makes a volume"),
        ("ray", "a" * 55, "metadata.name: plugin ray makes a Service"),
    ],
)
def test_a_name_that_is_too_long_for_what_a_plugin_makes_is_refused_w22(
    plugin: str, name: str, said: str
) -> None:
    found = problems(whole(task("head", 1), plugins={plugin: []}, name=name))
    assert any(said in problem for problem in found), found

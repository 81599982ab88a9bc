"""Real jobs in real containers: each check creates jobs and judges how they end."""

import json
from collections.abc import Callable
from typing import Any, Final

from tools.compose_docker import CheckError
from tools.node_check.images import JOBS
from tools.node_check.installing import NAMESPACE
from tools.node_check.machine import NODES, Machine, wait_for

_END_S: Final = 90.0
_OVER: Final = frozenset({"Completed", "Failed", "Aborted", "Terminated"})

Object = dict[str, Any]

_MEET: Final = """
import os, socket, sys, time
own, names = sys.argv[1], sys.argv[2].split(",")
server = socket.create_server(("", 7000))
server.settimeout(60)
def call(name):
    end = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection((name, 7000), timeout=2)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
calls = [call(name) for name in names]
for connection in calls:
    connection.sendall(own.encode().ljust(64))
heard = {server.accept()[0].recv(64, socket.MSG_WAITALL).decode().strip() for _ in names}
print(own, "heard", sorted(heard))
sys.exit(0 if heard == set(names) else 1)
"""
"""Each process calls all by their names, itself included, and must hear from exactly these."""


def job(name: str, *tasks: Object, **spec: Any) -> Object:  # noqa: ANN401 - fields of a spec
    """Return a Job that wants all of its pods."""
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": sum(task["replicas"] for task in tasks),
            "tasks": list(tasks),
            **spec,
        },
    }


def task(
    name: str,
    *command: str,
    replicas: int = 1,
    policies: tuple[Object, ...] = (),
    container: Object | None = None,
    **pod: Any,  # noqa: ANN401 - fields of a pod's spec
) -> Object:
    """Return a task of one container each."""
    main = {
        "name": "main",
        "image": JOBS,
        "imagePullPolicy": "Never",
        "command": list(command),
        "resources": {"requests": {"cpu": "20m", "memory": "16Mi"}},
        **(container or {}),
    }
    template = {
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [main],
            **pod,
        }
    }
    return {"name": name, "replicas": replicas, "policies": list(policies), "template": template}


def on(what: str | int, action: str) -> Object:
    """Return a policy for an event or an exit code."""
    when = {"exitCode": what} if isinstance(what, int) else {"event": what}
    return {**when, "action": action}


def phase(machine: Machine, name: str) -> str:
    """Return a job's phase; empty when it has none or is gone."""
    found = machine.kubectl(
        "get", "vcjob", name, "--ignore-not-found", "-o", "jsonpath={.status.state.phase}"
    )
    return found.strip()


def ends_as(machine: Machine, wanted: Object, *phases: str) -> float:
    """Create a job, wait until it is over in one of these phases, delete it; return the seconds."""
    name = wanted["metadata"]["name"]
    machine.apply(wanted)
    seconds = wait_until(machine, name, *phases)
    delete(machine, name)
    return seconds


def wait_until(machine: Machine, name: str, *phases: str, deadline_s: float = _END_S) -> float:
    """Wait until a job has one of these phases. Raises CheckError, also when it ends otherwise."""

    def look() -> str:
        seen = phase(machine, name)
        if seen in phases:
            return ""
        if seen in _OVER:
            raise CheckError(f"job {name} is {seen} instead of {phases}\n{story(machine, name)}")
        return f"{name} is {seen or 'not there'}\n{story(machine, name)}"

    return wait_for(f"job {name} is {phases[0]}", look, deadline_s=deadline_s)


def story(machine: Machine, name: str) -> str:
    """Return pods and logs of a job, for a person."""
    label = f"volcano.sh/job-name={name}"
    return machine.kubectl("get", "pods", "-l", label, "-o", "wide", may_fail=True) + (
        machine.kubectl("logs", "-l", label, "--prefix", "--tail=5", may_fail=True)
    )


def delete(machine: Machine, name: str) -> None:
    """Delete a job and wait until its pods are gone."""
    machine.kubectl("delete", "vcjob", name, "--timeout=60s")
    wait_for(f"pods of {name} are gone", lambda: str(pods_of(machine, name) or ""), deadline_s=60)


def pods_of(machine: Machine, name: str) -> dict[str, str]:
    """Return uid by name of a job's pods."""
    items = machine.get("pods", "-l", f"volcano.sh/job-name={name}")["items"]
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in items}


# --- jobs that talk ------------------------------------------------------------------------------


def gang_by_names(machine: Machine) -> None:
    """Have three pods find each other by the names of plugin svc."""
    names = [f"talk-worker-{number}.talk" for number in range(3)]
    script = f"python3 -c '{_MEET}' $(hostname).talk {','.join(names)}"
    worker = task("worker", "sh", "-c", script, replicas=3)
    ends_as(machine, job("talk", worker, plugins={"svc": [], "env": []}), "Completed")


def mpi(machine: Machine) -> None:
    """Have Open MPI start ranks on two workers over ssh, by the keys of plugin ssh."""
    ready = "mkdir -p /run/sshd; exec /usr/sbin/sshd -D -e"
    run = (
        "for host in $(cat /etc/volcano/mpiworker.host); do"
        " until ssh -o ConnectTimeout=2 $host true; do sleep 0.5; done; done;"
        " mpiexec --allow-run-as-root --mca btl_tcp_if_include eth0"
        " --hostfile /etc/volcano/mpiworker.host -np 2 --map-by node hostname | sort > /tmp/ranks;"
        " cat /tmp/ranks; test $(uniq /tmp/ranks | wc -l) = 2"
    )
    master = task("mpimaster", "sh", "-c", run, policies=(on("TaskCompleted", "CompleteJob"),))
    workers = task("mpiworker", "sh", "-c", ready, replicas=2)
    plugins: Object = {"ssh": [], "svc": [], "env": []}
    ends_as(machine, job("mpi", master, workers, plugins=plugins), "Completed")


def tensorflow(machine: Machine) -> None:
    """Have each process of a TF_CONFIG call all others at the addresses that stand there."""
    program = (
        "import json, os\n"
        "config = json.loads(os.environ['TF_CONFIG'])\n"
        "cluster = config['cluster']\n"
        "hosts = [a.split(':')[0] for kind in sorted(cluster) for a in cluster[kind]]\n"
        "own = cluster[config['task']['type']][config['task']['index']].split(':')[0]\n"
        "os.execvp('python3', ['python3', '-c', os.environ['MEET'], own, ','.join(hosts)])\n"
    )
    environment: Object = {"env": [{"name": "MEET", "value": _MEET}]}
    tasks = [
        task(name, "python3", "-c", program, replicas=count, container=environment)
        for name, count in (("ps", 1), ("worker", 2))
    ]
    plugins: Object = {"tensorflow": ["--ps=ps", "--worker=worker"], "svc": []}
    ends_as(machine, job("tf", *tasks, plugins=plugins), "Completed")


def pytorch(machine: Machine) -> None:
    """Register all ranks with rank 0 at MASTER_ADDR and MASTER_PORT, as torch's store does."""
    program = (
        "import os, socket, time\n"
        "rank, size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
        "port = int(os.environ['MASTER_PORT'])\n"
        "if rank == 0:\n"
        "    server = socket.create_server(('', port)); server.settimeout(60)\n"
        "    ranks = {int(server.accept()[0].recv(8)) for _ in range(size - 1)}\n"
        "    assert ranks == set(range(1, size)), ranks\n"
        "else:\n"
        "    for _ in range(120):\n"
        "        try:\n"
        "            s = socket.create_connection((os.environ['MASTER_ADDR'], port), timeout=2)\n"
        "            s.sendall(str(rank).encode()); break\n"
        "        except OSError:\n"
        "            time.sleep(0.5)\n"
        "    else:\n"
        "        raise SystemExit(1)\n"
    )
    tasks = [
        task(name, "python3", "-c", program, replicas=count)
        for name, count in (("master", 1), ("worker", 2))
    ]
    flags = ["--master=master", "--worker=worker", "--port=23456"]
    ends_as(machine, job("torch", *tasks, plugins={"pytorch": flags, "svc": []}), "Completed")


# --- policies ------------------------------------------------------------------------------------


def exit_codes(machine: Machine) -> None:
    """Abort a job by exit code 3, complete another by the end of one task."""
    aborts = task("main", "sh", "-c", "exit 3", policies=(on(3, "AbortJob"),))
    sleeps = task("other", "sleep", "600")
    ends_as(machine, job("aborts", aborts, sleeps), "Aborted")
    done = task("main", "true", policies=(on("TaskCompleted", "CompleteJob"),))
    ends_as(machine, job("completes", done, sleeps), "Completed")


def restarts(machine: Machine) -> None:
    """Have a job fail after maxRetry restarts."""
    fails = task("main", "sh", "-c", "exit 1", policies=(on("PodFailed", "RestartJob"),))
    ends_as(machine, job("restarts", fails, maxRetry=2), "Failed")


def out_of_memory(machine: Machine) -> None:
    """Restart a pod that the kernel killed for its memory limit, by policy RestartTask, alone."""
    eats = "test -e /state/seen && exit 0; touch /state/seen; exec python3 -c 'bytearray(400<<20)'"
    volume: Object = {"name": "state", "hostPath": {"path": "/tmp/node-check-state"}}  # noqa: S108
    volume["hostPath"]["type"] = "DirectoryOrCreate"
    limited: Object = {
        "resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": "64Mi"}},
        "volumeMounts": [{"name": "state", "mountPath": "/state"}],
    }
    policy = (on("PodFailed", "RestartTask"),)
    main = task("main", "sh", "-c", eats, policies=policy, container=limited, volumes=[volume])
    ends_as(machine, job("oom", main, task("other", "sleep", "5")), "Completed")


def deadline(machine: Machine) -> None:
    """Terminate a job by the policy of a pod that is beyond its activeDeadlineSeconds."""
    late = task(
        "main", "sleep", "600", policies=(on("PodFailed", "TerminateJob"),), activeDeadlineSeconds=3
    )
    ends_as(machine, job("late", late), "Terminated")


def time_to_live(machine: Machine) -> None:
    """Wait until a finished job is deleted after its ttlSecondsAfterFinished."""
    machine.apply(job("short", task("main", "true"), ttlSecondsAfterFinished=8))
    wait_until(machine, "short", "Completed")
    wait_for("job short is gone", lambda: phase(machine, "short"), deadline_s=30)


def suspend_and_resume(machine: Machine) -> None:
    """Abort a running job by a Command, resume it by another."""
    machine.apply(job("pauses", task("main", "sleep", "600")))
    wait_until(machine, "pauses", "Running")
    command(machine, "pauses", "AbortJob")
    wait_until(machine, "pauses", "Aborted")
    command(machine, "pauses", "ResumeJob")
    wait_until(machine, "pauses", "Running", deadline_s=60)
    delete(machine, "pauses")


def command(machine: Machine, name: str, action: str) -> None:
    """Create a Command to a job."""
    found = machine.get("vcjob", name)
    machine.apply(
        {
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "kind": "Command",
            "metadata": {"name": f"{name}-{action.lower()}", "namespace": "default"},
            "action": action,
            "target": {
                "apiVersion": found["apiVersion"],
                "kind": "Job",
                "name": name,
                "uid": found["metadata"]["uid"],
                "controller": True,
            },
        }
    )


def bad_job(machine: Machine) -> None:
    """Have admission refuse a job that cannot be, and name the field."""
    wrong = job("wrong", task("main", "true"), minAvailable=5)
    said = machine.kubectl("create", "-f", "-", stdin=json.dumps(wrong), may_fail=True)
    if "minAvailable" not in said or "denied" not in said:
        raise CheckError(f"a job with minAvailable above its pods: {said}")


def visibility(machine: Machine) -> None:
    """Ask the API server why a job waits that fits on no node."""
    container: Object = {"resources": {"requests": {"cpu": "900"}}}
    machine.apply(job("huge", task("main", "true", container=container)))

    def look() -> str:
        said = machine.kubectl("get", "pendingjobs", may_fail=True)
        return "" if "huge" in said and "cpu" in said else said

    wait_for("kubectl get pendingjobs tells of the job", look, deadline_s=60)
    delete(machine, "huge")


# --- nodes ---------------------------------------------------------------------------------------


def preemption(machine: Machine) -> None:
    """Let a job of a higher priority take the place of another, after that one's grace period."""
    for name, value in (("low", 1), ("high", 1000)):
        machine.apply(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": f"node-check-{name}"},
                "value": value,
            }
        )
    free = float(machine.get("node", NODES[1])["status"]["allocatable"]["cpu"]) * 0.4
    half: Object = {"resources": {"requests": {"cpu": str(round(free, 1))}}}
    place: Object = {"nodeSelector": {"kubernetes.io/hostname": NODES[1]}, "container": half}
    stubborn = "trap '' TERM; sleep 600"
    low = task("main", "sh", "-c", stubborn, replicas=2, **place)
    low["template"]["spec"]["terminationGracePeriodSeconds"] = 4
    machine.apply(job("low", low, minAvailable=1, priorityClassName="node-check-low"))
    wait_until(machine, "low", "Running")
    high = task("main", "true", **place)
    seconds = ends_as(machine, job("high", high, priorityClassName="node-check-high"), "Completed")
    if seconds < 4:  # noqa: PLR2004 - the grace period above
        raise CheckError(f"the preemptor ran after {seconds:.1f} s, within the victim's grace")
    delete(machine, "low")


def leaders_die(machine: Machine) -> str:
    """Delete the pods of scheduler, cache and NATS, leaders included; a job runs soon after."""
    told = []
    for app, limit_s in (("scheduler", 20), ("cache", 40), ("nats", 40)):
        label = f"app.kubernetes.io/name={app}"
        machine.kubectl("-n", NAMESPACE, "delete", "pod", "-l", label, "--wait=false")
        seconds = ends_as(machine, job(f"after-{app}", task("main", "true")), "Completed")
        if seconds > limit_s:
            raise CheckError(f"after the pods of {app} were deleted a job took {seconds:.0f} s")
        told.append(f"{app} {seconds:.1f} s")
    machine.kubectl("-n", NAMESPACE, "rollout", "status", "deployment", "--timeout=2m")
    return ", ".join(told)


def _two_apart(name: str) -> Object:
    """Return a job that is restarted when a pod is evicted, at first on the second node."""
    prefers = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 100,
                    "preference": {
                        "matchExpressions": [
                            {
                                "key": "kubernetes.io/hostname",
                                "operator": "In",
                                "values": [NODES[1]],
                            }
                        ]
                    },
                }
            ]
        }
    }
    sleeps = task("main", "sleep", "600", replicas=2, affinity=prefers)
    return job(name, sleeps, policies=[on("PodEvicted", "RestartJob")])


def _moved(machine: Machine, name: str, before: dict[str, str]) -> str:
    pods = machine.get("pods", "-l", f"volcano.sh/job-name={name}")["items"]
    here = [
        pod
        for pod in pods
        if pod["spec"].get("nodeName") == NODES[0] and pod["status"]["phase"] == "Running"
    ]
    new = [pod for pod in here if pod["metadata"]["uid"] not in before.values()]
    return "" if len(new) == len(before) else story(machine, name)


def drain(machine: Machine) -> str:
    """Drain a node: its gang is restarted on the other one."""
    machine.apply(_two_apart("drained"))
    wait_until(machine, "drained", "Running")
    before = pods_of(machine, "drained")
    flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=90s")
    machine.kubectl("drain", NODES[1], *flags)
    look = lambda: _moved(machine, "drained", before)  # noqa: E731
    seconds = wait_for("the gang runs on the other node", look, deadline_s=60)
    machine.kubectl("uncordon", NODES[1])
    delete(machine, "drained")
    return f"moved {seconds:.1f} s after the drain"


def node_is_lost(machine: Machine) -> str:
    """Stop a kubelet for good: its gang runs on the other node once its node counts as lost."""
    machine.apply(_two_apart("lost"))
    wait_until(machine, "lost", "Running")
    before = pods_of(machine, "lost")
    machine.stop_kubelet(NODES[1])
    taint = {"metadata": {"name": NODES[1]}}

    def out_of_service() -> str:
        node = machine.get("node", taint["metadata"]["name"])
        ready = [c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"]
        return "" if ready == ["Unknown"] else f"Ready is {ready}"

    wait_for("the node counts as lost", out_of_service, deadline_s=60)
    machine.kubectl("taint", "node", NODES[1], "node.kubernetes.io/out-of-service=gone:NoExecute")
    look = lambda: _moved(machine, "lost", before)  # noqa: E731
    seconds = wait_for("the gang runs on the other node", look, deadline_s=90)
    delete(machine, "lost")
    return f"moved {seconds:.1f} s after the node counted as lost"


Check = Callable[[Machine], str | None]
"""Raises CheckError when it does not find what it should; may return a figure."""

CHECKS: Final[dict[str, Check]] = {
    "a gang of three finds its members by name": gang_by_names,
    "mpiexec runs ranks on two workers over ssh": mpi,
    "parameter server and workers of a TF_CONFIG connect": tensorflow,
    "ranks of a pytorch job meet at their master": pytorch,
    "exit codes abort and complete jobs": exit_codes,
    "a failing job is restarted twice, then fails": restarts,
    "a pod killed for its memory is restarted alone": out_of_memory,
    "a pod beyond its deadline terminates its job": deadline,
    "a finished job is deleted after its time to live": time_to_live,
    "a job is suspended and resumed": suspend_and_resume,
    "a bad job is refused": bad_job,
    "kubectl get pendingjobs says why a job waits": visibility,
    "a job of high priority preempts, after the grace period": preemption,
    "the service goes on after its leaders' pods are deleted": leaders_die,
    "a drained node's gang is restarted on the other": drain,
    "a lost node's gang is restarted on the other": node_is_lost,
}

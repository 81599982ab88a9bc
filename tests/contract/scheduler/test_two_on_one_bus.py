"""A scheduler of single pods beside the one for groups, on one real nats-server (Y01)."""

from shared.contracts import messages as m
from tests.contract.scheduler.scheduler_stage import STREAMS, SUBJECTS, Stage, nodes_of
from tests.support import world
from tests.support.wait import until

AGENT = "agent-scheduler"
SINGLY = {"single_pods": "true", "scheduler_name": AGENT}


async def single_pod(stage: Stage, name: str, *, cpu: str = "1") -> None:
    meta = {"uid": f"uid-ns/{name}"}
    body = world.pod(name, namespace="ns", cpu=cpu, scheduler=AGENT, metadata=meta)
    await stage.fact("pods", f"ns/{name}", body)


def of_jobs(commands: list[m.Command]) -> dict[str, m.BindGang]:
    return {command.job: command for command in commands if isinstance(command, m.BindGang)}


async def test_each_has_its_leader_and_binds_what_is_its_own(stage: Stage):
    await stage.cluster()
    await stage.start("groups")
    await stage.start("singles", **SINGLY)
    await stage.gang("g", 2)
    await single_pod(stage, "a")
    await single_pod(stage, "b")
    commands = await stage.until_commands(3)
    by_job = of_jobs(commands)
    assert set(by_job) == {"ns/g", "ns/a", "ns/b"}
    assert set(nodes_of(by_job["ns/a"])) == {"ns/a"}
    assert len({command.id for command in commands}) == 3
    marks = [
        await stage.bus.last(STREAMS.command.name, SUBJECTS.leader("command", role))
        for role in ("", AGENT)
    ]
    assert None not in marks


async def test_the_next_one_of_single_pods_takes_over_from_one_that_died(stage: Stage):
    await stage.cluster(nodes=1)
    await stage.start("singles", **SINGLY)
    await stage.start("groups")
    await single_pod(stage, "a", cpu="3")
    (asked,) = await stage.until_commands(1)
    stage.kill_first()
    await stage.start("second", **SINGLY)
    await single_pod(stage, "large", cpu="3")
    await single_pod(stage, "small")
    by_job = of_jobs(await stage.until_commands(2))
    assert set(by_job) == {asked.job, "ns/small"}, "what the first one asked for is counted"
    assert by_job["ns/small"].id != asked.id


async def test_a_pod_that_has_no_room_says_so_and_nothing_is_said_of_queues(stage: Stage):
    await stage.cluster(nodes=1)
    await stage.start("singles", **SINGLY)
    await stage.group("g", 3, phase="Pending")
    await single_pod(stage, "large", cpu="30")
    wanted = await until(lambda: stage.desired("pods", "ns/large"), describe="a condition")
    assert isinstance(wanted, m.DesiredPod)
    assert wanted.conditions[0].reason == "Unschedulable"
    assert await stage.desired("queues", "default") is None
    assert await stage.desired("podgroups", "ns/g") is None

"""Objects that no scheduler was made for, and bugs that they bring out, on a real nats-server."""

from shared.contracts import messages as m
from tests.contract.scheduler.scheduler_stage import Stage, nodes_of
from tests.support.wait import until

HALF_WAY = """
from services.scheduler.engine.jobs.jobs import Jobs
take = Jobs.take
Jobs.take = lambda self, task: 1 / 0 if task.name == "bad-0" else take(self, task)
"""
CYCLE = """
from services.scheduler.policy.plugins.drf import Drf
contribute, calls = Drf.contribute, []
def fail(self, hooks, cluster):
    calls.append(1)
    return 1 / 0 if len(calls) < 3 else contribute(self, hooks, cluster)
Drf.contribute = fail
"""


async def test_pods_of_any_size_let_others_be_bound(stage: Stage) -> None:
    await stage.cluster(nodes=1)
    await stage.start()
    await stage.gang("huge", 1, cpu="9223372036854775807")
    await stage.gang("beyond", 3, cpu="8E")
    await stage.gang("g", 3)
    (command,) = await stage.until_commands(1)
    assert command.job == "ns/g"


async def test_a_bug_that_one_pod_brings_out_half_way_costs_that_pod_alone(stage: Stage) -> None:
    await stage.cluster()
    service = await stage.start(bug=HALF_WAY)
    await stage.gang("bad", 1)
    await stage.gang("g", 3)
    (command,) = await stage.until_commands(1)
    assert isinstance(command, m.BindGang)
    assert set(nodes_of(command)) == {"ns/g-0", "ns/g-1", "ns/g-2"}
    assert await service.metric('pumice_quarantined_objects{kind="pods"}') == 1

    async def told() -> bool:
        wanted = await stage.desired("pods", "ns/bad-0")
        return isinstance(wanted, m.DesiredPod) and wanted.conditions[0].reason == "Quarantined"

    await until(told, describe="the pod says that it was left out")


async def test_cycles_that_fail_are_skipped_and_tried_again(stage: Stage) -> None:
    await stage.cluster()
    service = await stage.start(wait=False, bug=CYCLE)
    await stage.gang("g", 3)
    (command,) = await stage.until_commands(1)
    assert command.job == "ns/g"
    await service.ready()
    assert await service.metric("pumice_scheduler_cycles_skipped_total") == 2
    assert await service.metric('pumice_quarantined_objects{kind="cycles"}') == 0

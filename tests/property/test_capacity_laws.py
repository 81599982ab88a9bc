"""Laws of the plugin capacity: limits of every level hold, accounts equal sums from scratch."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.plugins.points import Points
from pumice.testing import Cluster
from services.scheduler.decide import run_actions
from services.scheduler.engine.resources.dimensions import CPU_DIM
from services.scheduler.policy.plugins.capacity import Capacity
from tests.support.laws import count_hits, needs_hits

CONF = (
    'actions: "enqueue, allocate, reclaim, backfill"\ntiers:\n- plugins:\n'
    "  - {name: gang, enableReclaimable: false}\n  - {name: predicates}\n"
    "  - {name: capacity, enableHierarchy: true, arguments: {ancestorReclaimLevel: 1}}\n"
)
PARENTS = {"a": "root", "b": "root", "a1": "a", "a2": "a", "b1": "b"}
AMOUNT = st.integers(0, 6)


@st.composite
def clusters(draw):
    world = Cluster(CONF, queue=False).node("n1", cpu="6").node("n2", cpu="4").queue("root")
    limits = {}
    for name, parent in PARENTS.items():
        stated = {}
        for field in ("deserved", "capability"):
            if amount := draw(AMOUNT):
                stated[field] = {"cpu": str(amount)}
        limits[name] = int(stated.get("capability", {}).get("cpu", 10)) * 1000
        world.queue(name, parent=parent, **stated)
    for number in range(draw(st.integers(1, 5))):
        leaf = draw(st.sampled_from(["a1", "a2", "b1"]))
        node = draw(st.sampled_from(["", "", "n1"]))
        world.gang(
            f"g{number}",
            tasks=draw(st.integers(1, 4)),
            min_member=1,
            queue=leaf,
            node=node,
            phase="Running" if node else "Pending",
            minResources={"cpu": "1"},
        )
    return world, limits


def below(name):
    return {name} | {q for child, parent in PARENTS.items() if parent == name for q in below(child)}


def held(session, name, amounts="claimed"):
    jobs = session.cluster_state.jobs.all()
    return sum(int(getattr(job, amounts)[CPU_DIM]) for job in jobs if job.queue in below(name))


@needs_hits(at_least=24)
@settings(max_examples=60, deadline=None)
@given(clusters())
def test_limits_hold_on_every_level_and_accounts_are_what_jobs_hold(drawn):
    """What waits for evictions may exceed a parent's limit: upstream asks leaves only (PL06)."""
    world, limits = drawn
    session = world.session()
    plugin = _capacity_of(session)
    before = {name: held(session, name) for name in PARENTS}
    run_actions(session, world.config)
    for name, limit in limits.items():
        assert held(session, name, "allocated") <= max(limit, before[name]), name
        assert int(plugin._accounts[name].allocated[CPU_DIM]) == held(session, name), name
    count_hits([name for name in limits if held(session, name, "allocated") > before[name]])
    session.close()


def _capacity_of(session) -> Capacity:
    owners = [getattr(fn, "__self__", None) for fn in session.hooks.of(Points.allocatable)]
    return next(owner for owner in owners if isinstance(owner, Capacity))

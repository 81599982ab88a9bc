"""GPUs in MIG mode, which pods get by instances (DV2, Volcano's dynamic MIG)."""

import msgspec
import pytest

from pumice.testing import binds_of
from services.scheduler.config import BadConfig
from services.scheduler.policy.vendors.mig import (
    Geometry,
    free_instance,
    geometries_of,
    read_geometries,
)
from shared.api import kinds
from tests.unit.scheduler.test_vgpus import (
    A100,
    T4,
    add_node,
    ask,
    cards_of,
    register,
    world_of,
)

TABLE = [
    {
        "models": ["A100"],
        "allowedGeometries": [
            {"group": "small", "geometries": [{"name": "1g.5gb", "memory": 5120, "count": 2}]},
            {
                "group": "mixed",
                "geometries": [
                    {"name": "2g.10gb", "memory": 10240, "count": 1},
                    {"name": "1g.5gb", "memory": 5120, "count": 1},
                ],
            },
        ],
    }
]
GEOMETRIES = geometries_of(read_geometries(TABLE), A100)
GIVEN = f", deviceshare.MIGGeometries: {msgspec.json.encode(TABLE).decode()}"
MODE = "volcano.sh/vgpu-mode"


def cut(*cards: str, kind: str = A100, memory: int = 40000) -> str:
    """Return the registration of cards in MIG mode."""
    named = register(*((card, kind) for card in cards), memory=memory)
    return named.replace("hami-core", "mig")


@pytest.mark.parametrize(
    ("used", "memory", "place"),
    [
        pytest.param([], 10, ("small", 0), id="the-first-geometry"),
        pytest.param([], 6000, ("mixed", 0), id="the-first-with-an-instance-large-enough"),
        pytest.param([], 20000, None, id="none-is-large-enough"),
        pytest.param([("small", 0)], 10, ("small", 1), id="the-next-position"),
        pytest.param([("small", 1)], 10, ("small", 0), id="a-position-that-is-free-again"),
        pytest.param([("small", 0)], 6000, None, id="the-card-is-cut-already"),
        pytest.param([("small", 0), ("small", 1)], 10, None, id="all-in-use"),
        pytest.param([("mixed", 0)], 10, ("mixed", 1), id="another-profile-of-its-geometry"),
        pytest.param([("mixed", 1)], 10, ("mixed", 0), id="a-larger-one-if-no-other-is-free"),
    ],
)
def test_a_pod_gets_the_smallest_free_instance(used, memory, place):
    found = free_instance(GEOMETRIES, used, memory)
    assert (found.place if found else None) == place


def test_pods_get_instances_of_a_card_until_none_is_free():
    world = ask(world_of(GIVEN, cards=cut("GPU-0")), "g", tasks=3, number=1, memory=5000)
    assert cards_of(world.step()) == {"g-0": ["GPU-0[small-0]"], "g-1": ["GPU-0[small-1]"]}
    world.delete(kinds.POD, "ns/g-0", "uid-ns/g-0")
    assert cards_of(world.decide()) == {"g-2": ["GPU-0[small-0]"]}


def test_a_card_is_cut_anew_when_all_its_pods_have_gone():
    world = ask(world_of(GIVEN, cards=cut("GPU-0")), "g", number=1, memory=5000)
    world.step()
    ask(world, "h", number=1, memory=9000)
    assert binds_of(world.decide()) == {}
    world.delete(kinds.POD, "ns/g-0", "uid-ns/g-0")
    assert cards_of(world.decide()) == {"h-0": ["GPU-0[mixed-0]"]}


def test_a_container_gets_instances_of_several_cards():
    world = ask(world_of(GIVEN, cards=cut("GPU-0", "GPU-1")), "g", number=2, memory=9000)
    assert cards_of(world.decide()) == {"g-0": ["GPU-1[mixed-0]", "GPU-0[mixed-0]"]}


@pytest.mark.parametrize(("mode", "node"), [("mig", "n1"), ("hami-core", "n2"), ("mps", None)])
def test_a_pod_may_say_in_which_mode_its_cards_are(mode: str, node: str | None):
    world = add_node(world_of(GIVEN, cards=cut("GPU-0")), "n2")
    plan = ask(world, "g", number=1, memory=10, annotations={MODE: mode}).decide()
    assert binds_of(plan) == ({"g-0": node} if node else {})
    if node is None:
        reason = "its GPUs are in another mode than the pod requests"
        assert dict(plan.explanations[0].reasons) == {reason: 2}


def test_cards_of_a_model_without_geometries_are_refused_by_their_name():
    world = ask(world_of(GIVEN, cards=cut("GPU-0", kind=T4)), "g", number=1, memory=10)
    reason = "no geometries of its GPUs in MIG mode are known"
    assert dict(world.decide().explanations[0].reasons) == {reason: 1}


def test_rules_of_exclusive_cards_do_not_concern_instances():
    rules = f"{GIVEN}, deviceshare.GPUExclusiveRules: [{{app: a}}]"
    world = world_of(rules, cards=cut("GPU-0"))
    ask(world, "g", tasks=2, number=1, memory=10, labels={"app": "a"})
    assert len(cards_of(world.decide())) == 2


@pytest.mark.parametrize(
    "stated",
    ["[{models: [A100]}]", "[{models: [A], allowedGeometries: [{group: a-b, geometries: []}]}]"],
)
def test_a_bad_table_is_named(stated: str):
    with pytest.raises(BadConfig, match="MIGGeometries"):
        world_of(f", deviceshare.MIGGeometries: {stated}")


def test_geometries_are_read_in_volcanos_words():
    assert [geometry.group for geometry in GEOMETRIES] == ["small", "mixed"]
    assert all(isinstance(geometry, Geometry) for geometry in GEOMETRIES)
    assert geometries_of(read_geometries(TABLE), T4) == ()

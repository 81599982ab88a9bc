"""What the author of a queue, group, flow or HyperNode is told at once (W40 to W60, C04 to C09).

The words are those that Volcano's users, and their scripts, look for.
"""

from typing import Any

import pytest

from tests.integration.scenarios.offers import put, refused, taken, whole
from tests.integration.scenarios.playing import Playing, Scenario, Scenarios
from tests.integration.scenarios.scene import Object, Scene
from tests.support.api import ApiError

pytestmark = pytest.mark.asyncio(loop_scope="session")

scenarios = Scenarios()

# --- queues ----------------------------------------------------------------------------------

SMALL, LARGE = {"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "3Gi"}
PATH, WEIGHTS = "volcano.sh/hierarchy", "volcano.sh/hierarchy-weights"
BELOW_GUARANTEE = "must be >= guarantee"
BAD_QUEUES: dict[str, tuple[Object, dict[str, str], tuple[str, ...]]] = {
    "a negative weight": (
        {"weight": -1},
        {},
        ("spec.weight", "should be greater than or equal to 1"),
    ),
    "a guarantee alone": ({"guarantee": {"resource": SMALL}}, {}, (BELOW_GUARANTEE,)),
    "more deserved than it may use": (
        {"capability": SMALL, "deserved": {"cpu": "2", "memory": "1Gi"}},
        {},
        ("must be <= capability",),
    ),
    "a guarantee above what it may use": (
        {"capability": SMALL, "guarantee": {"resource": LARGE}},
        {},
        (BELOW_GUARANTEE,),
    ),
    "a guarantee above what it deserves": (
        {"deserved": {"cpu": "2", "memory": "1Gi"}, "guarantee": {"resource": LARGE}},
        {},
        (BELOW_GUARANTEE,),
    ),
    "a guarantee of what it does not deserve": (
        {"deserved": {"cpu": "10"}, "guarantee": {"resource": LARGE}},
        {},
        (BELOW_GUARANTEE,),
    ),
    "a path without weights": ({}, {PATH: "a"}, ("denied",)),
    "fewer steps than weights": (
        {},
        {PATH: "a/b", WEIGHTS: "1/2/3"},
        ("must have the same length",),
    ),
    "more weights than steps": (
        {},
        {PATH: "root/a/b", WEIGHTS: "1/2/3/4"},
        ("must have the same length",),
    ),
    "a negative weight on its path": ({}, {PATH: "root/a/b", WEIGHTS: "1/-1/3"}, ("denied",)),
    "a weight that is no number": ({}, {PATH: "root/a/b", WEIGHTS: "1/a/3"}, ("denied",)),
}


def bad_queue(spec: Object, annotations: dict[str, str], words: tuple[str, ...]) -> Scenario:
    """Return the scenario of a queue that is refused."""

    async def scenario(scene: Scene) -> None:
        body = whole("queues", f"{scene.namespace}-q", {"weight": 1, **spec}, **annotations)
        await refused(scene, "queues", body, *words)

    return scenario


for _name, (_spec, _path, _words) in BAD_QUEUES.items():
    scenarios.add(f"a queue with {_name} is refused", bad_queue(_spec, _path, _words))


def good_queue(spec: Object, state: str = "", **expected: Any) -> Scenario:
    """Return the scenario of a queue that is taken, opens, and can be deleted."""

    async def scenario(scene: Scene) -> None:
        name = f"{scene.namespace}-q"
        body = whole("queues", name, {"guarantee": {}, **spec})
        body["status"] |= {"state": state} if state else {}
        made = (await taken(scene, "queues", body))["spec"]
        assert {key: made.get(key) for key in expected} == expected
        await scene.queue_state("q", "Open")
        await scene.api.delete("queues", "", name)
        await scene.gone("queues", name)

    return scenario


scenarios.add("a queue gets weight and is reclaimable", good_queue({}, weight=1, reclaimable=True))
scenarios.add("a queue gets a weight", good_queue({"reclaimable": True}, weight=1))
scenarios.add("a queue is reclaimable", good_queue({"weight": 1}, reclaimable=True))
scenarios.add(
    "what a queue states stays",
    good_queue({"weight": 5, "reclaimable": False}, weight=5, reclaimable=False),
)
for _state in ("Open", "Closed"):
    scenarios.add(
        f"a new queue that says it is {_state} opens", good_queue({"weight": 1}, _state, weight=1)
    )
scenarios.add("a queue may deserve and no more", good_queue({"weight": 1, "deserved": SMALL}))
scenarios.add(
    "a queue may deserve what is not bounded",
    good_queue({"capability": {"cpu": "10"}, "deserved": {"cpu": "5", "memory": "10Gi"}}),
)
scenarios.add(
    "a queue may be granted what is not bounded",
    good_queue(
        {
            "capability": {"cpu": "10"},
            "deserved": {"cpu": "5", "memory": "8Gi"},
            "guarantee": {"resource": {"cpu": "5", "memory": "8Gi"}},
        }
    ),
)


@scenarios
async def a_queue_keeps_its_weight_above_nothing(scene: Scene) -> None:
    name = await scene.queue("q", weight=1)
    with pytest.raises(ApiError, match=r"spec\.weight.*should be greater than or equal to 1"):
        await put(scene, "queues", name, weight=-1)
    await put(scene, "queues", name, weight=2)


@scenarios
async def a_queue_may_have_a_parent_and_both_may_go(scene: Scene) -> None:
    parent = await scene.queue("parent", parent="root")
    child = await scene.queue("child", parent=parent)
    for name in (child, parent):
        await scene.api.delete("queues", "", name)
        await scene.gone("queues", name)


# --- PodGroups -------------------------------------------------------------------------------


async def grouped(scene: Scene, name: str, queue: str) -> str:
    """Create a PodGroup; return the queue that it is stored with."""
    spec = {"minMember": 1, **({"queue": queue} if queue else {})}
    return str((await taken(scene, "podgroups", whole("podgroups", name, spec)))["spec"]["queue"])


@scenarios
async def a_group_without_a_queue_goes_to_the_default_one(scene: Scene) -> None:
    assert await grouped(scene, "none", "") == "default"
    assert await grouped(scene, "default", "default") == "default"


@scenarios
async def a_namespace_chooses_the_queue_of_groups_that_name_none(scene: Scene) -> None:
    team, own = await scene.queue("team"), await scene.queue("own")
    annotations = {"scheduling.volcano.sh/queue-name": team}
    await scene.api.patch(
        "namespaces", "", scene.namespace, {"metadata": {"annotations": annotations}}
    )
    assert await grouped(scene, "default", "default") == team
    assert await grouped(scene, "own", own) == own


# --- JobFlows --------------------------------------------------------------------------------

NOT_DAG = "jobflow Flow is not DAG"


def flow(*needs: tuple[str, str]) -> Object:
    """Return a JobFlow; each entry has a name, and the names that it waits for."""
    flows = [
        {"name": name, **({"dependsOn": {"targets": after.split()}} if after else {})}
        for name, after in needs
    ]
    return whole("jobflows", "f", {"flows": flows, "jobRetainPolicy": "retain"})


GOOD_FLOWS = {
    "that joins and forks": (("a", ""), ("b", "a"), ("c", "a b"), ("d", "b"), ("e", "c d")),
    "with a name twice": (("a", ""), ("a", ""), ("b", "a")),
    "with a name twice and two orders": (("a", ""), ("b", "a"), ("c", "a"), ("c", "b")),
    "in a line": (("start", ""), ("middle", "start"), ("end", "middle")),
    "with two roots": (("a", ""), ("b", ""), ("a2", "a"), ("b2", "b"), ("c", "a2 b2")),
    "of nothing": (),
    "of one": (("a", ""),),
}
BAD_FLOWS = {
    "that waits for nobody known": ((("b", "a"), ("c", "a b")), (NOT_DAG, "vertex is not defined")),
    "that waits for itself": ((("a", "a"),), (NOT_DAG,)),
}


def good_flow(needs: tuple[tuple[str, str], ...]) -> Scenario:
    """Return the scenario of a JobFlow that is taken, and taken again with one more job."""

    async def scenario(scene: Scene) -> None:
        made = await taken(scene, "jobflows", flow(*needs))
        more = {"name": "last", "dependsOn": {"targets": [n for n, _ in needs[-1:]]}}
        await put(scene, "jobflows", "f", flows=[*made["spec"]["flows"], more])

    return scenario


def bad_flow(needs: tuple[tuple[str, str], ...], words: tuple[str, ...]) -> Scenario:
    """Return the scenario of a JobFlow that is refused."""

    async def scenario(scene: Scene) -> None:
        await refused(scene, "jobflows", flow(*needs), *words)

    return scenario


for _name, _needs in GOOD_FLOWS.items():
    scenarios.add(f"a flow {_name} is taken", good_flow(_needs))
for _name, (_needs, _words) in BAD_FLOWS.items():
    scenarios.add(f"a flow {_name} is refused", bad_flow(_needs, _words))


# --- HyperNodes ------------------------------------------------------------------------------

TOO_SHORT = "should be at least 1 chars long"
SELECTOR = "spec.members[0].selector"


def hypernode(scene: Scene, *selectors: Object) -> Object:
    """Return a HyperNode with a member for each selector."""
    members = [{"type": "Node", "selector": selector} for selector in selectors]
    return whole("hypernodes", f"{scene.namespace}-h", {"tier": 1, "members": members})


GOOD_SELECTORS: dict[str, Object] = {
    "by name": {"exactMatch": {"name": "node-1"}},
    "by pattern": {"regexMatch": {"pattern": "node-[0-9]+"}},
    "by label": {"labelMatch": {"matchLabels": {"topology-rack": "rack1"}}},
}
BAD_SELECTORS: dict[str, tuple[tuple[Object, ...], tuple[str, ...]]] = {
    "no name": (({"exactMatch": {"name": ""}},), (f"{SELECTOR}.exactMatch.name", TOO_SHORT)),
    "no pattern": (
        ({"regexMatch": {"pattern": ""}},),
        (f"{SELECTOR}.regexMatch.pattern", TOO_SHORT),
    ),
    "half a pattern": (({"regexMatch": {"pattern": "a(b"}},), ("regexMatch.pattern",)),
    "no members": ((), ("members",)),
    "a name of bad letters": (
        ({"exactMatch": {"name": "Node_with@bad"}},),
        (f"{SELECTOR}.exactMatch.name", "should match"),
    ),
}


def good_hypernode(selector: Object) -> Scenario:
    """Return the scenario of a HyperNode that is taken, changed, and spoilt in vain."""

    async def scenario(scene: Scene) -> None:
        body = hypernode(scene, selector)
        name = (await taken(scene, "hypernodes", body))["metadata"]["name"]
        other = [{"type": "Node", "selector": {"regexMatch": {"pattern": "node-[1-5]"}}}]
        await put(scene, "hypernodes", name, members=other)
        with pytest.raises(ApiError, match="members"):
            await put(scene, "hypernodes", name, members=[])

    return scenario


def bad_hypernode(selectors: tuple[Object, ...], words: tuple[str, ...]) -> Scenario:
    """Return the scenario of a HyperNode that is refused."""

    async def scenario(scene: Scene) -> None:
        await refused(scene, "hypernodes", hypernode(scene, *selectors), *words)

    return scenario


for _name, _selector in GOOD_SELECTORS.items():
    scenarios.add(f"a HyperNode has members {_name}", good_hypernode(_selector))
for _name, (_selectors, _words) in BAD_SELECTORS.items():
    scenarios.add(f"a HyperNode with {_name} is refused", bad_hypernode(_selectors, _words))


@scenarios.mark()
async def test_offered(playing: Playing, scenario: Scenario) -> None:
    await playing.end_of(scenario)

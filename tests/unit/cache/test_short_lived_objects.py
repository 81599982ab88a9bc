"""An object that comes and goes before a fact about it is published leaves a tombstone.

Who created it knows it from the answer to its request, and would keep it for ever.
"""

from tests.unit.cache.test_publish_queue import World, held_pod


def test_a_namesake_that_comes_and_goes_behind_a_tombstone_on_its_way_has_its_own() -> None:
    world = World()
    world.lists(held_pod("a", 1))
    world.publishes()
    world.deletes("a", 5)
    on_its_way = world.takes()
    world.puts(held_pod("a", 6, uid="second"))
    world.deletes("a", 7, uid="second")
    world.confirms(on_its_way)
    [tombstone] = world.takes()
    assert (tombstone.fact.uid, tombstone.fact.rv) == ("second", "7")
    world.confirms([tombstone])
    assert world.publishes() == []


def test_a_namesake_that_is_there_again_is_published_as_it_is() -> None:
    world = World()
    world.lists(held_pod("a", 1))
    world.publishes()
    world.deletes("a", 5)
    on_its_way = world.takes()
    world.puts(held_pod("a", 6, uid="second"))
    world.deletes("a", 7, uid="second")
    world.puts(held_pod("a", 8, uid="third"))
    world.confirms(on_its_way)
    assert world.publishes() == ["put ns/a@8"]
    world.deletes("a", 9, uid="third")
    assert world.publishes() == ["delete ns/a@9"]

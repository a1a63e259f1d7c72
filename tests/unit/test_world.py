"""A World keeps the passes that were made when it only gets further notes."""

from ptanalyze.world.site import Site
from replay_cases import case, world_of
from strategies import build_snapshot, build_trace

HEAP = 0x5600_0000_0000


def small_world():
    trace = build_trace([(0, [HEAP, HEAP + 4096])])
    return world_of(case(build_snapshot([(HEAP, 1), (HEAP + 4096, 2)]), trace))


def test_notes_are_added_and_every_pass_is_kept():
    world = small_world().noted("first")
    passes = {name: getattr(world, name) for name in ("space", "stream", "readers", "history", "data")}
    again = world.noted("second", "third")
    assert again.notes == ("first", "second", "third")
    assert world.notes == ("first",)
    assert all(vars(again)[name] is made for name, made in passes.items())


def test_what_is_known_before_events_is_the_same_of_a_site_and_of_its_world():
    world = small_world()
    site = Site(world.snapshot, world.trace, world.machine, world.placement)
    assert (site.nodes, site.sockets, site.readers) == (world.nodes, world.sockets, world.readers)
    assert site.captured is site and world.reshaped(domains=2).captured is world
    assert not hasattr(site, "history")

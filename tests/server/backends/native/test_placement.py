"""Which of several engines serves a session: the rule, for every state that they can be in."""

from hypothesis import given
from hypothesis import strategies as st

from vivace.server.backends.native.engines.placement import EngineLoad, place

LOADS = st.builds(
    EngineLoad,
    st.sampled_from(["ready", "silent", "down"]),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from([0, 100, 1000]),
)
GROUPS = st.lists(LOADS, min_size=1, max_size=5)
PLACES = st.none() | st.integers(0, 4)


@given(GROUPS, PLACES, PLACES, PLACES)
def test_the_rule(engines: list[EngineLoad], home: int | None, parent: int | None, near: int | None) -> None:
    """Where its KV is while that engine lives, else with its parent, else with the least realtime turns."""
    home = home if home is None else home % len(engines)
    parent = parent if parent is None else parent % len(engines)
    near = near if near is None else near % len(engines)
    chosen = place(engines, home=home, parent=parent, near=near)
    if home is not None and engines[home].state != "down":
        assert chosen == home
    elif parent is not None and engines[parent].state != "down":
        assert chosen == parent
    else:
        ready = [engine for engine in engines if engine.state == "ready"]
        assert not ready or engines[chosen] in ready
        for other in ready:
            assert engines[chosen].realtime <= other.realtime
            if engines[chosen].realtime == other.realtime and chosen != near:
                assert engines[chosen].free_cells >= other.free_cells


@given(
    st.lists(st.builds(EngineLoad, st.just("ready"), st.integers(0, 9)), min_size=2, max_size=5),
    st.integers(1, 40),
)
def test_new_sessions_spread(engines: list[EngineLoad], count: int) -> None:
    """One after the other they level the realtime turns of all engines, or leave the busiest as it was."""
    before = max(engine.realtime for engine in engines)
    loads = list(engines)
    for _ in range(count):
        at = place(loads)
        loads[at] = loads[at]._replace(realtime=loads[at].realtime + 1)
    turns = [load.realtime for load in loads]
    assert sum(turns) == sum(engine.realtime for engine in engines) + count
    assert max(turns) <= max(before, min(turns) + 1)


def test_a_beginning_decides_between_engines_that_are_alike() -> None:
    """Sessions that begin alike come together, but not where more turns run than elsewhere."""
    ready = EngineLoad("ready", 1, 0, 500)
    assert place([ready._replace(free_cells=900), ready], near=1) == 1
    assert place([ready, ready._replace(realtime=2)], near=1) == 0


def test_background_turns_decide_last() -> None:
    """Realtime first, then room, then the number of background turns, then the first engine."""
    ready = EngineLoad("ready", 1, 2, 500)
    assert place([ready, ready._replace(background=1), ready]) == 1
    assert place([ready, ready._replace(free_cells=600, background=9)]) == 1
    assert place([ready, ready]) == 0

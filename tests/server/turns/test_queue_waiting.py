"""Waiting in the queue as a task does: told its place, cancelled, admitted."""

import asyncio
from collections.abc import Callable
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.thorough import examples
from vivace.engine.wire.frames import Tier
from vivace.protocol.shapes.outcomes import Queued
from vivace.server.turns.queue import FIRST_GUESS_S, QueueTicket, TurnQueue


async def follow(ticket: QueueTicket, told: list[int]) -> bool:
    async for place in ticket.wait():
        told.append(place.position)
    return ticket.is_running


async def until(is_so: Callable[[], object]) -> None:
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not come")


async def test_a_free_slot_is_had_without_waiting() -> None:
    """Nothing is told, and the turn may run."""
    told: list[int] = []
    assert await follow(TurnQueue().enter("realtime", "ann"), told)
    assert told == []


async def test_those_who_wait_are_told_their_place() -> None:
    """The place at once, then every other place, then it is their turn."""
    queue, told = TurnQueue(1, 10), list[int]()
    first, second, third = (queue.enter("realtime", "ann") for _ in range(3))
    waiting = asyncio.create_task(follow(third, told))
    await until(lambda: told == [2])
    first.leave()
    await until(lambda: told == [2, 1])
    second.leave()
    assert await waiting
    assert (queue.running("realtime"), queue.waiting("realtime")) == (1, 0)


async def test_the_estimate_is_told_with_the_place() -> None:
    """A client hears how long it will take."""
    queue = TurnQueue(2, 10)
    tickets = [queue.enter("realtime", "ann") for _ in range(5)]
    assert await anext(tickets[4].wait()) == tickets[4].place == Queued(3, 3 * FIRST_GUESS_S / 2)
    assert tickets[0].place is None


async def test_a_slow_listener_hears_the_latest_place() -> None:
    """Places that were passed meanwhile are not told one by one."""
    queue = TurnQueue(1, 10)
    tickets = [queue.enter("realtime", "ann") for _ in range(6)]
    places = tickets[5].wait()
    assert (await anext(places)).position == 5
    for ticket in tickets[:3]:
        ticket.leave()
    assert (await anext(places)).position == 2


async def test_a_cancelled_task_frees_its_place() -> None:
    """A client that goes away while it waits holds nothing, and the next one moves up."""
    queue, told = TurnQueue(1, 10), list[int]()
    queue.enter("realtime", "ann")

    async def wait_for_ever() -> None:
        with queue.enter("realtime", "ann") as ticket:
            await follow(ticket, [])

    gone = asyncio.create_task(wait_for_ever())
    await until(lambda: queue.waiting("realtime"))
    behind = asyncio.create_task(follow(queue.enter("realtime", "ann"), told))
    await until(lambda: told == [2])
    gone.cancel()
    await until(lambda: told == [2, 1])
    behind.cancel()


async def test_a_task_cancelled_as_it_is_admitted_frees_its_slot() -> None:
    """The slot that a turn was given in the moment in which its client went away goes to the next one."""
    queue = TurnQueue(1, 10)
    first = queue.enter("realtime", "ann")

    async def run() -> None:
        with queue.enter("realtime", "ann") as ticket:
            await follow(ticket, [])

    gone = asyncio.create_task(run())
    await until(lambda: queue.waiting("realtime"))
    next_one = queue.enter("realtime", "ann")
    first.leave()
    gone.cancel()
    assert await follow(next_one, [])


async def test_a_ticket_that_left_stops_waiting() -> None:
    """Leaving from elsewhere ends the wait, and the turn may not run."""
    queue, told = TurnQueue(1, 10), list[int]()
    queue.enter("realtime", "ann")
    ticket = queue.enter("realtime", "ann")
    waiting = asyncio.create_task(follow(ticket, told))
    await until(lambda: told)
    ticket.leave()
    assert not await waiting


@settings(max_examples=examples(25))
@given(seed=st.integers(0, 2**32))
def test_a_storm_leaves_nothing_behind(seed: int) -> None:
    """Turns that end, fail or are cancelled at any moment: never too many at once, and in the end none."""
    queue, most = asyncio.run(storm(Random(seed)))
    assert most <= 4
    for tier in ("realtime", "background"):
        assert queue.running(tier) == queue.waiting(tier) == 0


async def storm(random: Random) -> tuple[TurnQueue, int]:
    queue, most = TurnQueue(4, 50), 0

    async def turn(tier: Tier, key: str, ticks: int) -> None:
        nonlocal most
        with queue.enter(tier, key) as ticket:
            await follow(ticket, [])
            most = max(most, queue.running("realtime") + queue.running("background"))
            for _ in range(ticks):
                await asyncio.sleep(0)
            if ticks == 3:
                raise ValueError

    tasks = list[asyncio.Task[None]]()
    for _ in range(300):
        tier: Tier = random.choice(["realtime", "background"])
        tasks.append(asyncio.create_task(turn(tier, random.choice("abc"), random.randrange(5))))
        if random.random() < 0.3:
            random.choice(tasks).cancel()
        if random.random() < 0.5:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    return queue, most

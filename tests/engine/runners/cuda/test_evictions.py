"""More sessions than the GPU's KV holds: they go to host memory and come back, and no text changes by it."""

import random
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
pytest.importorskip("msgspec", reason="the engine's packages are not installed")
if torch.cuda.is_available():
    pytest.skip("a GPU has copies of its own", allow_module_level=True)

from tests.engine.desk import Desk  # noqa: E402
from tests.engine.fixtures import PAYING, cuda_fixture  # noqa: E402
from tests.engine.runners.cuda.test_host_tier import LateTransfers  # noqa: E402
from vivace.engine.kv.parked_cache import ParkedCache  # noqa: E402
from vivace.engine.kv.session import Session  # noqa: E402
from vivace.engine.kv.sessions import Sessions  # noqa: E402
from vivace.engine.runners.base import SamplingSpec, Span  # noqa: E402
from vivace.engine.runners.cuda.model.shape import PAGE_TOKENS  # noqa: E402
from vivace.engine.runners.cuda.runner import CudaRunner  # noqa: E402
from vivace.engine.wire.frames import Finished, Generate, Open, Sampling, Stats, StatsReply  # noqa: E402

SESSIONS = 7
CELLS = 320  # five pages
SAMPLINGS = [Sampling(), Sampling(temperature=0.8, seed=5), Sampling(temperature=0.8, top_p=0.6, seed=6)]


def make_runner(context_tokens: int) -> CudaRunner:
    runner = cuda_fixture(8, context_tokens=context_tokens).runner
    assert isinstance(runner, CudaRunner)
    return runner


def turns_of(session: int, chance: random.Random) -> list[Generate]:
    """Three turns; texts that are read by passes of few tokens, which give the same bits in any company."""
    letters = [chance.randrange(97, 123) for _ in range(29)]
    return [
        Generate(
            f"s{session}", f"{session}.{number}", letters if not number else letters[:5],
            max_tokens=chance.randint(8, 14), sampling=SAMPLINGS[session % 3], use_drafts=False,
        )
        for number in range(3)
    ]  # fmt: skip


def test_sessions_that_make_room_say_what_they_say_alone(seed: int, tmp_path: Path) -> None:
    """Seven conversations in a KV for three, copied as late as can be: the same tokens, none read twice."""
    chance = random.Random(seed)
    works = [turns_of(session, chance) for session in range(SESSIONS)]
    runner = make_runner(CELLS)
    kv = runner._kv.view(torch.uint8)
    runner._host.transfers = LateTransfers(kv.reshape(*kv.shape[:2], -1))
    parked_cache = ParkedCache(
        tmp_path, kv_format=runner.info.kv_format, limit_bytes=1 << 30, allocate=runner.allocate
    )
    desk = Desk(runner, parked_cache, costs=PAYING)
    desk.give(*(Open(f"s{session}") for session in range(SESSIONS)))
    left = [list(turns) for turns in works]
    while any(left) or not desk.engine.is_idle:
        ended = {frame.turn for frame in desk.sent if isinstance(frame, Finished)}
        for session, turns in enumerate(left):
            before = works[session][2 - len(turns)].turn if turns else ""
            has_room = len(desk.engine._scheduler) < 2  # so that there is always an idle one to make room
            all_began = all(len(each) < 3 for each in left)  # so that some of them had to make room
            is_due = len(turns) == 3 or (before in ended and all_began)
            if turns and has_room and is_due and chance.random() < 0.3:
                desk.give(turns.pop(0))
        for _ in range(chance.randrange(8)):
            if not desk.engine.is_idle:
                desk.engine.step()
    reference = Desk(make_runner(2048), costs=PAYING)
    for session, turns in enumerate(works):
        reference.run(Open(f"s{session}"))
        for turn in turns:
            reference.run(turn)
            assert desk.tokens(turn.turn) == reference.tokens(turn.turn), turn.turn
    waterfalls = [desk.finished(turn.turn).waterfall for turns in works for turn in turns]
    assert any(waterfall.restored_tokens for waterfall in waterfalls)
    assert all(waterfall.new_tokens <= 29 for waterfall in waterfalls)
    desk.run(Stats())
    assert any(frame.parked_memory_bytes for frame in desk.sent if isinstance(frame, StatsReply))
    parked_cache.close()


def test_a_page_reserved_for_a_running_turn_does_not_cost_a_prefill(tmp_path: Path) -> None:
    """The KV of a turn fills one page exactly and its next pass has a second: an idle session makes room."""
    runner = make_runner(3 * PAGE_TOKENS)
    parked_cache = ParkedCache(
        tmp_path, kv_format=runner.info.kv_format, limit_bytes=1 << 30, allocate=runner.allocate
    )
    sessions = Sessions(runner, parked_cache)

    def fill(name: str, length: int) -> Session:
        session = sessions.open(name, [97 + ord(name)] * length)
        sessions.assign_sequence(session, None)
        runner.forward([Span(session.seq, 0, session.log, want=0)])
        session.kv = length
        return session

    parked = fill("p", 40)
    sessions.park("p")
    running, _ = fill("r", PAGE_TOKENS), fill("i", 40)
    running.claim = (False, 1.0)
    runner.decode(Span(running.seq, PAGE_TOKENS, [97]), SamplingSpec(), 0, lambda: None)
    sessions.assign_sequence(parked, None)
    assert parked.restored_tokens == 40
    parked_cache.close()

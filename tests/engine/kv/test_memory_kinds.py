"""The engine with every kind of model memory says what llama.cpp says that reads the whole log anew.

Tiny random models of each architecture, through any mix of operations (`sessions_machine`). One wrong state
in a KV changes the logits by more than the bound.
"""

import itertools
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.desk import Desk
from tests.engine.kv.sessions_machine import SessionsMachine
from tests.engine.tiny_models import ARCHITECTURES, KINDS, write_tiny_model
from tests.thorough import examples
from vivace.engine.kv.checkpoints import INTERVAL_TOKENS
from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.kv.session import Session
from vivace.engine.output.sampler import log_probability
from vivace.engine.runners.base import CheckpointRunner, Logits, Runner, Span, Stopped
from vivace.engine.wire.frames import Append, Generate, Open, Park, Rewind, Sampling, Tokens, Waterfall

PASS_TOKENS = 512
# Logits apart: passes of other sizes and other neighbours add up in another order. These models' logits
# have a standard deviation of 16, SmolLM2's one of 3.3: a tie of 0.01 there is one of 0.05 here.
NEAR = 0.05
CELLS = 4096
FEW_CELLS = 600  # so that sessions park each other, and cells behind windows are taken
NOT_EXACT = ["gemma3", "gpt-oss", "qwen35", "nemotron_h", "lfm2", "mamba2"]


class TinyMachine(SessionsMachine):
    architecture = ""
    folder_of_models: Path
    cells = 300
    sampling = Sampling(top_logprobs=1)
    most_parked_bytes = 64 << 20
    most_checkpoint_bytes = 16 << 20

    def make_runner(self) -> Runner:
        runner = _runner(self.architecture, self.folder_of_models, "crowded", FEW_CELLS)
        for seq in range(runner.info.sequences):
            runner.trim(seq, 0)
        return runner

    def rows(self, tokens: list[int], want: int) -> Logits:
        return plain_rows(self.architecture, self.folder_of_models, tokens, want)

    def replay(self, log: list[int], count: int) -> list[int]:
        said: list[int] = []
        while len(said) < count:
            said.append(int(self.rows(log + said, 1)[0].argmax()))
        return said

    def check(self, log: list[int], turn: str, count: int) -> None:
        """Compare how likely each token was, too: many states lead to the same one."""
        said = self.desk.tokens(turn)
        assert len(said) <= count
        if said:
            rows = self.rows(log + said[:-1], len(said))
            assert_best(rows, said)
            expected = [log_probability(row, token) for row, token in zip(rows, said, strict=True)]
            assert logprobs(self.desk, turn) == pytest.approx(expected, abs=2 * NEAR)

    def check_scores(self, log: list[int], candidates: list[list[int]], scores: list[float]) -> None:
        for candidate, score in zip(candidates, scores, strict=True):
            rows = self.rows(log + candidate[:-1], len(candidate))
            expected = sum(log_probability(row, token) for row, token in zip(rows, candidate, strict=True))
            assert score == pytest.approx(expected, abs=2 * NEAR, rel=2e-3)


def plain_rows(architecture: str, models: Path, tokens: list[int], want: int) -> Logits:
    """Return the logits of the last tokens, read in passes of 512 from an empty KV."""
    plain = _runner(architecture, models, "plain")
    plain.trim(0, 0)
    for start in range(0, len(tokens) - want, PASS_TOKENS):
        plain.forward([Span(0, start, tokens[start : min(start + PASS_TOKENS, len(tokens) - want)])])
    return plain.forward([Span(0, len(tokens) - want, tokens[-want:], want)])


def logprobs(desk: Desk, turn: str) -> list[float]:
    frames = [frame for frame in desk.sent if isinstance(frame, Tokens) and frame.turn == turn]
    return [each.chosen.logprob for frame in frames for each in frame.logprobs]


def assert_best(rows: Logits, said: list[int]) -> None:
    for row, token in zip(rows, said, strict=True):
        assert row[token] >= row.max() - NEAR, f"{row.max() - row[token]:.3f} below the best"


@cache
def _runner(architecture: str, folder: Path, name: str, cells: int = CELLS) -> Runner:
    """Return llama.cpp with a tiny model; `name` tells several of one model apart."""
    from vivace.engine.runners.llamacpp import LlamaRunner

    del name
    return LlamaRunner(write_tiny_model(architecture, folder), context_tokens=cells, threads=1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_any_mix_of_operations_says_what_the_model_says(architecture: str, models: Path) -> None:
    """Appends, drafts, rewinds, steers, forks, parking and others beside it: the tokens of a fresh start."""
    machine = type("Machine", (TinyMachine,), {"architecture": architecture, "folder_of_models": models})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples(4), stateful_step_count=30))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_tiny_model_remembers(architecture: str, models: Path) -> None:
    """What stands far back changes its logits by more than the tests allow, or they would prove nothing."""
    end = some_log(20, 1)
    one = np.array(plain_rows(architecture, models, some_log(40, 2) + end, 4))
    other = np.array(plain_rows(architecture, models, some_log(40, 3) + end, 4))
    assert np.abs(one - other).max() > 2 * NEAR


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_runner_knows_its_models_memory(architecture: str, models: Path) -> None:
    """Attention keeps everything, windows forget, and recurrent states cannot be cut."""
    kind = _runner(architecture, models, "engine").info.memory
    assert kind == KINDS.get(architecture, "checkpoints")


@pytest.mark.parametrize("architecture", ["gemma3", "qwen35", "mamba2"])
def test_what_cannot_be_cut_is_said_to_be_empty(architecture: str, models: Path) -> None:
    """A sequence that lacks what an earlier length needs holds nothing afterwards, and can be read anew."""
    runner = _runner(architecture, models, "engine")
    for seq in range(runner.info.sequences):
        runner.trim(seq, 0)
    tokens = [token % 128 for token in range(0, 7 * 200, 7)]
    runner.forward([Span(0, 0, tokens)])
    state = runner.save(0)
    runner.trim(0, 0)
    runner.load(0, state)  # a window's cells before it are not in the state
    assert runner.share(0, 1, 100) == 0
    assert runner.trim(0, 100) == 0
    rows = np.array(runner.forward([Span(0, 0, tokens[:100], want=1)]))
    runner.trim(1, 0)
    assert np.allclose(rows, runner.forward([Span(1, 0, tokens[:100], want=1)]), atol=NEAR)


def some_log(count: int, seed: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, 128, count)]


def says(desk: Desk, models: Path, architecture: str, log: list[int], turn: str) -> Waterfall:
    """Open a session with a log, let it speak, and check that against a fresh start."""
    desk.run(Open(turn, log[:-5]), Generate(turn, turn, log[-5:], max_tokens=6))
    said = desk.tokens(turn)
    assert_best(plain_rows(architecture, models, log + said[:-1], len(said)), said)
    return desk.finished(turn).waterfall


def fresh_desk(architecture: str, models: Path, folder: Path) -> tuple[Desk, ParkedCache]:
    runner = _runner(architecture, models, "engine")
    for seq in range(runner.info.sequences):
        runner.trim(seq, 0)
    cache = ParkedCache(
        folder,
        kv_format=runner.info.kv_format,
        limit_bytes=1 << 30,
        can_cut=runner.info.memory == "exact",
    )
    desk = Desk(runner, cache)
    desk.engine._sessions.checkpoints.longest_interval = INTERVAL_TOKENS  # whatever a copy takes
    return desk, cache


@pytest.mark.parametrize("architecture", NOT_EXACT)
def test_conversations_with_the_same_beginning_are_right(
    architecture: str, models: Path, tmp_path: Path
) -> None:
    """The second one with the same instructions while the first is in memory, and after a restart."""
    beginning = some_log(300, 1)
    desk, _ = fresh_desk(architecture, models, tmp_path)
    says(desk, models, architecture, beginning + some_log(90, 2), "a")
    desk.engine.close()
    desk, _ = fresh_desk(architecture, models, tmp_path)
    says(desk, models, architecture, beginning + some_log(9, 3), "b")
    says(desk, models, architecture, beginning + some_log(8, 4), "c")
    desk.run(Park("b"), Park("c"))
    says(desk, models, architecture, beginning + some_log(7, 5), "d")
    desk.engine.close()


@pytest.mark.parametrize("architecture", ["qwen35", "mamba2"])
def test_at_most_one_interval_is_read_twice(architecture: str, models: Path, tmp_path: Path) -> None:
    """A rewind reads from the last checkpoint on, a third conversation only what no other begins with."""
    beginning = some_log(1300, 6)
    desk, _ = fresh_desk(architecture, models, tmp_path)
    says(desk, models, architecture, beginning + some_log(100, 7), "a")
    second = says(desk, models, architecture, beginning + some_log(100, 8), "b")
    assert second.new_tokens <= 100 + INTERVAL_TOKENS
    third = says(desk, models, architecture, beginning + some_log(100, 9), "c")
    assert third.new_tokens <= 101
    desk.run(Rewind("a", 1200), Generate("a", "again", [5], max_tokens=3))
    again = desk.finished("again").waterfall
    assert again.new_tokens <= INTERVAL_TOKENS + 1
    assert again.reread_tokens == again.new_tokens - 1
    desk.engine.close()


@pytest.mark.parametrize("architecture", ["qwen35", "mamba2"])
@pytest.mark.parametrize("has_disk", [False, True])
def test_a_named_beginning_is_read_once(
    architecture: str, models: Path, tmp_path: Path, *, has_disk: bool
) -> None:
    """The second conversation with the same instructions reads only its own words."""
    desk, _ = fresh_desk(architecture, models, tmp_path)
    if not has_disk:
        desk = Desk(_runner(architecture, models, "engine"), None)
    beginning = some_log(300, 41)
    for name, own in (("a", some_log(90, 42)), ("b", some_log(90, 43))):
        log = beginning + own
        desk.run(Open(name, []), Generate(name, name, log, max_tokens=6, kept_tokens=len(beginning)))
        said = desk.tokens(name)
        assert_best(plain_rows(architecture, models, log + said[:-1], len(said)), said)
    assert desk.finished("b").waterfall.new_tokens == 90
    desk.engine.close()


@pytest.mark.parametrize("architecture", NOT_EXACT)
def test_checkpoints_come_back_after_a_restart(architecture: str, models: Path, tmp_path: Path) -> None:
    """A parked conversation goes on at its end, or near any place; another uses its beginning."""
    log = some_log(1500, 21)
    desk, _ = fresh_desk(architecture, models, tmp_path)
    says(desk, models, architecture, log, "a")
    log += desk.tokens("a")
    desk.engine.close()
    desk, _ = fresh_desk(architecture, models, tmp_path)
    end = says(desk, models, architecture, [*log, 1, 2, 3], "end")
    assert (end.new_tokens, end.reread_tokens) == (4, 0)
    desk.run(Rewind("end", 1200), Generate("end", "back", [5], max_tokens=3))
    said = desk.tokens("back")
    assert_best(plain_rows(architecture, models, [*log[:1200], 5, *said[:-1]], len(said)), said)
    assert desk.finished("back").waterfall.new_tokens <= INTERVAL_TOKENS + 1
    desk.engine.close()
    desk, _ = fresh_desk(architecture, models, tmp_path)
    alike = says(desk, models, architecture, log[:1300] + some_log(60, 22), "alike")
    assert alike.restored_tokens >= 1300 - INTERVAL_TOKENS
    assert alike.reread_tokens == 1300 - alike.cached_tokens
    desk.engine.close()


def test_checkpoints_keep_to_their_bytes(models: Path, tmp_path: Path) -> None:
    """In a long log they stand further apart, and a rewind reads no more than from one to the next."""
    desk, _ = fresh_desk("qwen35", models, tmp_path)
    checkpoints = desk.engine._sessions.checkpoints
    checkpoints._limit_bytes = most = 2 * len(_state("qwen35", models))
    log = some_log(1900, 23)
    says(desk, models, "qwen35", log, "a")
    assert 0 < checkpoints.held_bytes() <= most
    lengths = [0, *(each.length for each in desk.engine._sessions.get("a").checkpoints), len(log)]
    furthest = max(after - before for before, after in itertools.pairwise(lengths))
    assert furthest < 0.7 * len(log)
    desk.run(Rewind("a", 1100), Generate("a", "again", [5], max_tokens=3))
    assert desk.finished("again").waterfall.new_tokens <= furthest + 1
    said = desk.tokens("again")
    assert_best(plain_rows("qwen35", models, [*log[:1100], 5, *said[:-1]], len(said)), said)
    desk.engine.close()


def test_a_token_is_written_without_a_copy_of_the_state(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow passes can be stopped, and the state before them is held; but not where one token is computed."""
    runner = _runner("qwen35", models, "engine")
    cache = ParkedCache(tmp_path, kv_format=runner.info.kv_format, limit_bytes=1 << 30, can_cut=False)
    slow = {1: 100.0, 16: 120.0, 64: 200.0, 512: 900.0}  # ms
    desk = Desk(runner, cache, slow)
    held: list[int] = []
    checkpoints = desk.engine._sessions.checkpoints
    hold = checkpoints.hold

    def counted(sessions: Sequence[Session]) -> bool:
        held.append(len(sessions))
        return hold(sessions)

    monkeypatch.setattr(checkpoints, "hold", counted)
    desk.run(Open("a", []), Generate("a", "first", some_log(40, 31), max_tokens=1, use_drafts=False))
    assert held, "reading a prompt can be stopped"
    held.clear()
    desk.run(Generate("a", "second", [], max_tokens=8, use_drafts=False))
    assert not held
    desk.engine.close()


def test_a_conversation_more_than_there_are_states_waits_parked(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve conversations in eight states: each goes on at its end, and says what it would alone."""
    from vivace.engine.runners import recurrent
    from vivace.engine.runners.llamacpp import LlamaRunner

    monkeypatch.setattr(recurrent, "SEQUENCES", recurrent.FEWEST)
    runner = LlamaRunner(write_tiny_model("qwen35", models), context_tokens=CELLS, threads=1)
    assert runner.info.sequences == 8
    cache = ParkedCache(tmp_path, kv_format=runner.info.kv_format, limit_bytes=1 << 30, can_cut=False)
    desk = Desk(runner, cache)
    logs = {f"s{number}": some_log(60 + number, number) for number in range(12)}
    for name, log in logs.items():
        says(desk, models, "qwen35", log, name)
    for name, log in logs.items():
        desk.run(Generate(name, f"{name} again", [1, 2], max_tokens=4))
        assert desk.finished(f"{name} again").waterfall.new_tokens == 3
        said = desk.tokens(f"{name} again")
        whole = [*log, *desk.tokens(name), 1, 2]
        assert_best(plain_rows("qwen35", models, whole + said[:-1], len(said)), said)
    desk.engine.close()
    runner.close()


def _state(architecture: str, models: Path) -> bytes | bytearray:
    """Return what one checkpoint of a model takes."""
    runner = _runner(architecture, models, "engine")
    assert isinstance(runner, CheckpointRunner)
    runner.trim(0, 0)
    runner.forward([Span(0, 0, [1, 2, 3])])
    state = runner.checkpoint(0, 3).state
    runner.trim(0, 0)
    return state


@pytest.mark.parametrize("architecture", ["qwen35", "falcon-h1", "mamba2"])
def test_drafts_of_recurrent_models(architecture: str, models: Path, tmp_path: Path) -> None:
    """A draft that is right is said at once; behind a wrong one comes what comes without."""
    desk, _ = fresh_desk(architecture, models, tmp_path)
    log = some_log(100, 24)
    desk.run(Open("plain", list(log)), Generate("plain", "p", [5], max_tokens=24, use_drafts=False))
    truth = desk.tokens("p")
    desk.run(Open("right", list(log)), Generate("right", "r", [5], max_tokens=24, prediction=truth))
    wrong = [*truth[:9], (truth[9] + 1) % 128, *truth[10:]]
    desk.run(Open("wrong", list(log)), Generate("wrong", "w", [5], max_tokens=24, prediction=wrong))
    assert desk.finished("r").waterfall.steps < 12
    assert desk.finished("w").waterfall.draft_rejected
    for turn in ("r", "w"):
        said = desk.tokens(turn)
        assert_best(plain_rows(architecture, models, [*log, 5, *said[:-1]], len(said)), said)
    desk.engine.close()


def test_another_answer_begins_where_the_prompt_ended(models: Path, tmp_path: Path) -> None:
    """A checkpoint stands there: of the prompt nothing is read again."""
    desk, _ = fresh_desk("qwen35", models, tmp_path)
    prompt = some_log(300, 15)
    desk.run(Open("s"), Generate("s", "first", prompt, max_tokens=20))
    desk.run(Rewind("s", len(prompt)), Generate("s", "second", [7], max_tokens=4))
    assert desk.finished("second").waterfall.new_tokens == 1
    said = desk.tokens("second")
    assert_best(plain_rows("qwen35", models, [*prompt, 7, *said[:-1]], len(said)), said)
    desk.engine.close()


def test_typed_text_is_read_once(models: Path, tmp_path: Path) -> None:
    """A prompt that was read while it was typed is not read again when it is sent, nor what precedes it."""
    desk, _ = fresh_desk("qwen35", models, tmp_path)
    log, typed = some_log(700, 10), some_log(40, 11)
    says(desk, models, "qwen35", log, "s")
    log += desk.tokens("s")
    desk.run(Append("s", "typing", typed, is_provisional=True))
    desk.run(Append("s", "corrected", [*typed[:20], 7, 8], is_provisional=True))
    assert desk.finished("corrected").waterfall.new_tokens <= 23
    desk.run(Generate("s", "sent", [*typed[:20], 7, 8], max_tokens=4))
    assert desk.finished("sent").waterfall.new_tokens <= 1
    said = desk.tokens("sent")
    assert_best(plain_rows("qwen35", models, log + typed[:20] + [7, 8] + said[:-1], len(said)), said)
    desk.engine.close()


def test_a_stopped_pass_loses_nothing(models: Path, tmp_path: Path) -> None:
    """A prompt that is given up in the middle of a pass goes on from where the pass began."""
    desk, _ = fresh_desk("qwen35", models, tmp_path)
    log = some_log(900, 12)
    desk.run(Open("s"), Append("s", "w", log[:400]))
    sessions, runner = desk.engine._sessions, desk.runner
    session = sessions.get("s")
    session.log += log[400:]
    span = Span(session.seq, session.kv, session.log[session.kv : session.kv + 300])
    with pytest.raises(Stopped):
        sessions.forward([session], [span], lambda: True)
    assert session.kv == 399
    rows = np.array(runner.forward([Span(session.seq, 399, log[399:], want=1)]))
    plain_rows("qwen35", models, log[:399], 1)
    plain = _runner("qwen35", models, "plain")
    assert np.allclose(rows, plain.forward([Span(0, 399, log[399:], want=1)]), atol=NEAR)
    desk.engine.close()

"""The log of a task: any beginning of it, also one that is cut in the middle of a line, is a valid state."""

import tempfile
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.thorough import examples
from vivace.agent.events.task import (
    ApprovalAnswered,
    ApprovalAsked,
    CallEnded,
    CallMade,
    CallStarted,
    FilesWritten,
    FileWriting,
    ModelAnswered,
    PlanUpdated,
    Steered,
    TaskEnded,
    TaskResumed,
    TextGrew,
    TurnBegan,
    WritingBegan,
)
from vivace.agent.loop.task import TaskLimits
from vivace.agent.tasks.inbox import Message, put, read_after
from vivace.agent.tasks.log import TaskLog, parse_lines
from vivace.agent.tasks.records import (
    SCHEMA,
    AnyRecord,
    Line,
    MessageTaken,
    RunnerBegan,
    TaskQueued,
    TaskTaken,
)
from vivace.agent.tasks.resuming import checkpoint_of, limits_of, open_calls, progress_of
from vivace.agent.tasks.state import Status, state_of

QUEUED = TaskQueued(
    schema=SCHEMA,
    id="1",
    folder="/f",
    workspace="/w",
    way="tools",
    model="m",
    task="Do it.",
    access="workspace-write",
    asking="on-request",
    limits=TaskLimits(),
    at_s=1.0,
)
IDS = st.sampled_from(["call_1", "call_2", "call_3"])
NAMES = st.sampled_from(["read", "edit", "shell", "unknown"])
TEXTS = st.text(max_size=20)
CALLS = st.builds(CallMade, call_id=IDS, name=NAMES, arguments=TEXTS, is_custom=st.booleans())
TURNS = st.integers(1, 9)
STEPS: st.SearchStrategy[AnyRecord] = st.one_of(
    st.builds(RunnerBegan),
    st.builds(TaskResumed, turns=TURNS, at_s=st.just(1.0)),
    st.builds(TurnBegan, turn=TURNS, messages=st.lists(TEXTS, max_size=2).map(tuple)),
    st.builds(
        ModelAnswered,
        turn=TURNS,
        response_id=TEXTS,
        text=TEXTS,
        calls=st.lists(CALLS, max_size=3, unique_by=lambda call: call.call_id).map(tuple),
        steers=st.lists(TEXTS, max_size=2).map(tuple),
        fault=TEXTS,
        tokens=TURNS,
    ),
    st.builds(TextGrew, text=TEXTS),
    st.builds(CallStarted, call_id=IDS, tool=NAMES, title=TEXTS),
    st.builds(
        CallEnded,
        call_id=IDS,
        tool=NAMES,
        status=st.sampled_from(["done", "failed", "refused", "malformed"]),
        output=TEXTS,
    ),
    st.builds(ApprovalAsked, call_id=IDS, tool=NAMES, title=TEXTS, reason=TEXTS),
    st.builds(ApprovalAnswered, call_id=IDS, is_allowed=st.booleans()),
    st.builds(PlanUpdated, steps=st.just([])),
    st.builds(
        WritingBegan,
        call_ids=st.lists(IDS, max_size=2),
        files=st.just([FileWriting(path="/w/a", before_sha256=None, after_sha256="b")]),
    ),
    st.builds(FilesWritten, entry=TURNS, paths=st.just(["a"]), diff=TEXTS),
    st.builds(Steered, text=TEXTS),
    st.builds(MessageTaken, number=TURNS, kind=st.just("steer")),
    st.builds(TaskTaken, entry=TURNS, paths=st.just(())),
    st.builds(TaskEnded, reason=st.sampled_from(["completed", "stopped", "turns"]), exit_code=st.just(0)),
)


def logged(steps: list[AnyRecord]) -> bytes:
    return b"".join(
        msgspec.json.encode(Line(float(at), step)) + b"\n" for at, step in enumerate([QUEUED, *steps])
    )


@settings(max_examples=examples(40))
@given(st.lists(STEPS, max_size=8), st.data())
def test_any_beginning_of_a_log_is_a_valid_state(steps: list[AnyRecord], data: st.DataObject) -> None:
    """Cut anywhere, it has a status, and if its first line is whole the task can go on from it."""
    whole = logged(steps)
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    lines = list(parse_lines(cut))
    assert lines == list(parse_lines(whole))[: len(lines)], "what is whole is read as it was"
    state = state_of(lines)
    assert state.status in get_args(Status)
    assert (state.queued is None) == (not lines)
    assert state.seconds >= 0
    if not lines:
        return
    progress, checkpoint = progress_of(lines), checkpoint_of(lines)
    said = open_calls(progress, {"read"}, {"edit"})
    assert set(said) == {call.call_id for call in progress.unanswered}
    outputs = [item["call_id"] for item in checkpoint.items if item.get("type", "").endswith("_output")]
    assert outputs == [call.call_id for call in progress.calls], "each call is answered once"
    assert limits_of(lines).turns >= TaskLimits().turns


@settings(max_examples=examples(40))
@given(st.lists(STEPS, max_size=4), st.integers(1, 60))
def test_a_log_that_was_cut_goes_on(steps: list[AnyRecord], cut: int) -> None:
    """What a crash left of a line is dropped, and the next line is whole."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log.jsonl"
        whole = logged([*steps, TextGrew(text="x" * 60)])
        file.write_bytes(whole[:-cut])
        with TaskLog(file) as log:
            log.append(Steered(text="on"))
        lines = list(parse_lines(file.read_bytes()))
        assert lines[:-1] == list(parse_lines(logged(steps)))
        assert lines[-1].step == Steered(text="on")


@settings(max_examples=examples(40))
@given(st.lists(st.one_of(TEXTS, st.none()), max_size=8))
def test_messages_survive_writers_that_are_killed(texts: list[str | None]) -> None:
    """Half a line (None) hides no other message, and numbers grow."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "inbox.jsonl"
        numbers = []
        for text in texts:
            if text is None:
                with file.open("ab") as opened:
                    opened.write(b'{"kind":"ste')
            else:
                numbers.append(put(file, Message("steer", text)))
        found = read_after(file, 0)
        assert [number for number, _ in found] == numbers == sorted(set(numbers))
        assert [message.text for _, message in found] == [text for text in texts if text is not None]
        if numbers:
            assert [number for number, _ in read_after(file, numbers[0])] == numbers[1:]


def test_secrets_are_not_in_a_log(tmp_path: Path) -> None:
    """What a tool printed is written down without them."""
    file = tmp_path / "log.jsonl"
    with TaskLog(file) as log:
        log.append(Steered(text="use sk-abcdefghijklmnopqrstuvwx1234"))
    assert b"abcdefgh" not in file.read_bytes()


@pytest.mark.parametrize(
    ("steps", "status", "seconds"),
    [
        ([], "queued", 0),
        ([RunnerBegan(), Steered(text="a")], "running", 1),
        ([RunnerBegan(), ApprovalAsked(call_id="1", tool="t", title="", reason="")], "waiting", 1),
        ([RunnerBegan(), TaskEnded(reason="tokens", exit_code=5)], "limit", 1),
        ([RunnerBegan(), TaskEnded(reason="completed", exit_code=0), RunnerBegan()], "running", 1),
    ],
)
def test_the_last_lines_say_how_a_task_is(steps: list[AnyRecord], status: Status, seconds: float) -> None:
    """Its time runs only while a process works on it and no person is waited for."""
    state = state_of(parse_lines(logged(steps)))
    assert (state.status, state.seconds) == (status, seconds)


def test_steers_that_no_answer_knows_are_told_again() -> None:
    """One that an answered turn had is not; one of a turn that was cut off is."""
    steps: list[AnyRecord] = [
        Steered(text="first"),
        TurnBegan(turn=1, messages=("first",)),
        Steered(text="second"),
        ModelAnswered(
            turn=1,
            response_id="r1",
            steers=("second",),
            calls=(CallMade(call_id="c", name="shell", arguments="{}"),),
        ),
        CallEnded(call_id="c", tool="shell", status="done", output="ok"),
        Steered(text="third"),
        TurnBegan(turn=2, messages=("third",)),
    ]
    checkpoint = checkpoint_of(list(parse_lines(logged(steps))))
    assert checkpoint.messages == ("third",)
    assert (checkpoint.previous, checkpoint.turns) == ("r1", 1)
    assert checkpoint.items == ({"type": "function_call_output", "call_id": "c", "output": "ok"},)
    told = [item.get("content") for item in checkpoint.told if item.get("role") == "user"]
    assert told[-2:] == ["first", "second"]

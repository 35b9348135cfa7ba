"""Long units, written part by part: a real server, a scripted model, and once the small real one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agent.edits.test_flow import HANG_S, Recorder
from tests.server.serving import script
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.apply.source import read_source
from vivace.agent.edits.find.languages import PYTHON
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.parts import parts_of
from vivace.agent.edits.find.target import parse_target
from vivace.agent.edits.flow import EditTask, run_edit
from vivace.agent.edits.proposal import Accept, AcceptHunks
from vivace.agent.edits.scope import read_scope
from vivace.agent.effort import Effort
from vivace.agent.events.edit import (
    AnswersCompared,
    DiffGrew,
    EditApplied,
    EditProposed,
    UnitLeft,
    UnitLocated,
)
from vivace.agent.model import Model
from vivace.agent.prompting import Message
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.errors import EditRejected, NothingToUndo

STEP = "    if a > {0}:\n        a -= {0}\n        log(a, {0})\n"
LONG = "def f(a):\n" + "".join(STEP.format(n) for n in range(30)) + "    return a\n"
OLD, NEW = "log(a, 11)", "log(a, eleven)"
SECOND_OLD, SECOND_NEW = "log(a, 20)", "log(a, twenty)"


class Desk:
    """One file with a long unit, and a model that gives this answer."""

    def __init__(self, client: ResponsesClient, folder: Path, text: str = LONG) -> None:
        self.file = folder / "long.py"
        self.file.write_text(text)
        self.journal = Journal(folder / "undo")
        self._client, self._folder = client, folder
        self.text = text

    @property
    def parts(self) -> list[str]:
        source = read_source(self.file)
        unit = list_units(source, PYTHON)[0]
        cut = parts_of(source, PYTHON, unit)
        return [source.text_of(each.first_line, each.last_line) for each in cut]

    def answer(self, *changes: tuple[str, str], end: str = "Done.") -> str:
        """Return the answer that makes these changes, each in its part."""
        pieces = []
        for old, new in changes:
            number = next(n for n, part in enumerate(self.parts, 1) if old in part)
            pieces.append(f"Part {number}:\n```python\n{self.parts[number - 1].replace(old, new)}```")
        return "\n\n".join([*pieces, end])

    async def edit(
        self,
        presenter: Recorder,
        answer: str,
        instruction: str = "shout",
        target: str = ":f",
        effort: Effort = "low",
        step_ms: float = 0.0,
        kind: type[Model] = Model,
    ) -> object:
        model = script(self._folder, replies={"": answer}, context_tokens=60_000, step_ms=step_ms)
        scope = read_scope(parse_target(f"{self.file}{target}"), to_write=True)
        task = EditTask((scope,), instruction, "ask", effort)
        async with asyncio.timeout(HANG_S):
            return await run_edit(task, kind(self._client, model), presenter, self.journal)


@pytest.fixture
async def client(address: ServerAddress) -> AsyncIterator[ResponsesClient]:
    async with ResponsesClient(address) as client:
        yield client


@pytest.fixture
def desk(client: ResponsesClient, tmp_path: Path) -> Desk:
    return Desk(client, tmp_path)


def written(presenter: Recorder) -> str:
    return "".join(event.delta for event in presenter.events if isinstance(event, DiffGrew))


async def test_only_a_part_is_written(desk: Desk) -> None:
    """The change lands, all else keeps its bytes, and a fraction of the unit was written; undo works."""
    presenter = Recorder(Accept())
    await desk.edit(presenter, desk.answer((OLD, NEW)))
    assert desk.file.read_text() == LONG.replace(OLD, NEW)
    assert len(written(presenter)) < len(LONG) / 4
    assert isinstance(presenter.events[-1], EditApplied)
    desk.journal.undo()
    assert desk.file.read_text() == LONG


async def test_the_part_is_located_and_its_diff_grows_there(desk: Desk) -> None:
    """Faces are told the unit, then the part; the live diff has the part's own line numbers."""
    presenter = Recorder(Accept())
    await desk.edit(presenter, desk.answer((OLD, NEW)))
    unit, part = (event.unit for event in presenter.events if isinstance(event, UnitLocated))
    assert (unit.name, part.kind) == ("f", "part")
    grown = [event for event in presenter.events if isinstance(event, DiffGrew)]
    assert grown[-1].diff.first_line == part.first_line > 1
    changed = [row.text.strip() for row in grown[-1].rows if row.tag == "+"]
    assert changed == [NEW]
    (hunk,) = next(e for e in presenter.events if isinstance(e, EditProposed)).proposal.hunks
    assert part.first_line <= hunk.old_first + 3 <= part.last_line


async def test_a_second_part_is_written_where_it_must_change_too(desk: Desk) -> None:
    """The model goes on with another part of the same answer; both are one proposal, hunk by hunk."""
    presenter = Recorder(AcceptHunks(frozenset({1})))
    await desk.edit(presenter, desk.answer((OLD, NEW), (SECOND_OLD, SECOND_NEW)))
    assert len(presenter.asked[0].hunks) == 2
    assert desk.file.read_text() == LONG.replace(SECOND_OLD, SECOND_NEW)


async def test_parts_above_may_come_second(desk: Desk) -> None:
    """A part that grew does not shift another one above or below it."""
    presenter = Recorder(Accept())
    longer = f"log(a)\n        {SECOND_NEW}"
    await desk.edit(presenter, desk.answer((SECOND_OLD, longer), (OLD, NEW)))
    assert desk.file.read_text() == LONG.replace(SECOND_OLD, longer).replace(OLD, NEW)


async def test_an_interrupt_leaves_the_file(desk: Desk) -> None:
    """Cancelled while a part is written: nothing is changed or recorded."""
    presenter = Recorder(Accept())
    presenter.stop_at = DiffGrew
    with pytest.raises(asyncio.CancelledError):
        await desk.edit(presenter, desk.answer((OLD, NEW)), step_ms=1)
    assert desk.file.read_text() == LONG
    with pytest.raises(NothingToUndo):
        desk.journal.undo()


async def test_an_answer_that_a_fence_ends_early_is_refused(desk: Desk) -> None:
    """What the model says behind a fence is no code, and the lines that are missing then are not lost."""
    part = next(part for part in desk.parts if OLD in part)
    changed, kept, *_ = part.splitlines()
    early = f"{changed}  # louder\n    shout(a)\n{kept}\n```\nThe rest stays.\n"
    with pytest.raises(EditRejected, match="leaves out the last"):
        await desk.edit(Recorder(Accept()), desk.answer((part, early)))
    assert desk.file.read_text() == LONG


async def test_an_answer_that_does_not_parse_is_refused(desk: Desk) -> None:
    """It is shown with its problem, and nothing is written."""
    presenter = Recorder(Accept())
    with pytest.raises(EditRejected, match="cannot be used"):
        await desk.edit(presenter, desk.answer((OLD, "log(a, 11")))
    shown = next(event for event in presenter.events if isinstance(event, EditProposed))
    assert "does not parse" in shown.proposal.problems[0]
    assert desk.file.read_text() == LONG


async def test_other_answers_are_compared_for_a_broken_part(desk: Desk) -> None:
    """At medium, an answer that does not parse is compared with others for the same part."""
    presenter = Recorder(Accept())
    with pytest.raises(EditRejected):
        await desk.edit(presenter, desk.answer((OLD, "log(a, 11")), effort="medium")
    kinds = [type(event) for event in presenter.events if isinstance(event, UnitLocated | AnswersCompared)]
    assert kinds[:3] == [UnitLocated, UnitLocated, AnswersCompared]


class Undecided(Model):
    """A model to which all candidates are alike."""

    async def score(self, messages: list[Message], candidates: list[str]) -> list[float]:
        del messages
        return [0.0] * len(candidates)


async def test_an_unchanged_part_is_followed_by_the_next_best(
    client: ResponsesClient, tmp_path: Path
) -> None:
    """At medium, where the likeliest part comes back as it was, the next best one is written."""
    desk = Desk(client, tmp_path)
    texts = desk.parts
    same = f"Part 1:\n```python\n{texts[0]}```\n\nDone."  # for another part it is a change
    presenter = Recorder(Accept())
    await desk.edit(presenter, same, effort="medium", kind=Undecided)
    first, second = [event.unit for event in presenter.events if isinstance(event, UnitLocated)][1:3]
    assert (first.first_line, second.first_line) == (1, 1 + texts[0].count("\n"))


async def test_a_part_is_removed_if_that_is_asked(desk: Desk) -> None:
    """An empty answer takes a part away only where something is to be removed."""
    part = next(part for part in desk.parts if OLD in part)
    answer = desk.answer((part, ""))
    with pytest.raises(EditRejected, match="empty"):
        await desk.edit(Recorder(Accept()), answer)
    await desk.edit(Recorder(Accept()), answer, instruction="remove the steps around 11")
    assert desk.file.read_text() == LONG.replace(part, "")


@pytest.mark.parametrize("end", ["\r\n", "\n"])
async def test_line_ends_and_tabs_are_kept(client: ResponsesClient, tmp_path: Path, end: str) -> None:
    """In a file with tabs and CRLF the change is the only difference, byte for byte."""
    text = LONG.replace("    ", "\t").replace("\n", end)
    desk = Desk(client, tmp_path)
    desk.file.write_bytes(text.encode())
    await desk.edit(Recorder(Accept()), desk.answer((OLD, NEW)))
    assert desk.file.read_bytes().decode() == text.replace(OLD, NEW)


@pytest.mark.parametrize("instruction", ["add a method size", "add a `__len__`"])
async def test_a_new_method_of_a_long_class_is_written_alone(
    client: ResponsesClient, tmp_path: Path, instruction: str
) -> None:
    """Asked for a new method, a class of 100 lines costs the method, which stands among the others."""
    method = "    def m{0}(self):\n        self.n = {0}\n        return {0}\n\n"
    text = "class A:\n" + "".join(method.format(n) for n in range(25)).rstrip("\n") + "\n"
    desk = Desk(client, tmp_path, text)
    presenter = Recorder(Accept())
    answer = "```python\n    def size(self):\n        return self.n\n```"
    await desk.edit(presenter, answer, instruction, target=":A")
    assert "    def size(self):\n        return self.n\n" in desk.file.read_text()
    assert len(written(presenter)) < 60
    assert all(method.format(n).strip() in desk.file.read_text() for n in range(25))


STUBS = "@overload\ndef f(a: int) -> int: ...\n@overload\ndef f(a: str) -> str: ...\n"
SHORT = "def f(a):\n    return a\n"


async def test_overload_signatures_are_not_written_again(client: ResponsesClient, tmp_path: Path) -> None:
    """The implementation alone is the model's; its new parameter goes into every signature."""
    head = "from typing import overload\n"
    desk = Desk(client, tmp_path, head + STUBS + SHORT)
    presenter = Recorder(Accept())
    answer = "```python\ndef f(a, *, deep=False):\n    return a\n```"
    await desk.edit(presenter, answer)
    assert "overload" not in written(presenter)
    located = next(event.unit for event in presenter.events if isinstance(event, UnitLocated))
    assert located.lines_text == "6-7", "the implementation's"
    assert desk.file.read_text() == head + STUBS.replace(") ->", ", *, deep=...) ->") + answer[10:-3]


async def test_a_signature_that_cannot_follow_is_said_to_be_left(
    client: ResponsesClient, tmp_path: Path
) -> None:
    """Where the new parameter belongs is not clear in one of them: the edit is written, and says so."""
    head = "from typing import overload\n"
    desk = Desk(client, tmp_path, head + STUBS.replace("a: str", "b: str") + SHORT)
    presenter = Recorder(Accept())
    await desk.edit(presenter, "```python\ndef f(a, deep=False):\n    return a\n```")
    left = [event.in_words for event in presenter.events if isinstance(event, UnitLeft)]
    assert len(left) == 1
    assert left[0].startswith("f (overload at line 5) stays as it is.")
    assert "def f(a: int, deep=...) -> int: ..." in desk.file.read_text()


async def test_a_real_model_writes_a_part(
    smol_served: Settings, smol_address: ServerAddress, tmp_path: Path
) -> None:
    """With real scores and tokens: one part at most is other than before, and the rest keeps its bytes."""
    async with ResponsesClient(smol_address) as client:
        desk = Desk(client, tmp_path)
        scope = read_scope(parse_target(f"{desk.file}:f"), to_write=True)
        presenter = Recorder(Accept(), Accept())
        task = EditTask((scope,), "the step of 11 should log twelve", "ask", "low")
        try:
            await run_edit(task, Model(client, smol_served.model), presenter, desk.journal)
        except EditRejected:
            assert desk.file.read_text() == LONG
    parts = [event.unit for event in presenter.events if isinstance(event, UnitLocated)][1:]
    assert parts
    assert all(part.kind == "part" for part in parts)
    now, lines = desk.file.read_text().splitlines(), LONG.splitlines()
    first = min(part.first_line for part in parts)
    last = max(part.last_line for part in parts)
    assert now[: first - 1] == lines[: first - 1]
    assert now[len(now) - (len(lines) - last) :] == lines[last:]


def test_the_parts_of_this_file_are_what_the_tests_think(tmp_path: Path) -> None:
    """Both changes stand in parts of their own."""
    desk = Desk(None, tmp_path)  # type: ignore[arg-type]
    first = [number for number, part in enumerate(desk.parts) if OLD in part]
    second = [number for number, part in enumerate(desk.parts) if SECOND_OLD in part]
    assert len(first) == len(second) == 1
    assert first != second

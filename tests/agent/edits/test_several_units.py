"""An edit of several units and files: a plan, unit by unit, one proposal, one entry; a scripted model."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.agent.edits.test_flow import HANG_S, Recorder
from tests.server.serving import script
from vivace.agent.edits.apply.journal import Entry, Journal
from vivace.agent.edits.find.target import parse_target
from vivace.agent.edits.flow import EditTask, run_edit
from vivace.agent.edits.proposal import Accept, AcceptHunks, Reject, UseText
from vivace.agent.edits.scope import read_scope
from vivace.agent.effort import Effort
from vivace.agent.events.edit import (
    DiffGrew,
    EditApplied,
    EditDecided,
    EditPlanned,
    EditProposed,
    EditStarted,
    UnitLeft,
    UnitLocated,
)
from vivace.agent.events.turn import TimesMeasured, WritingEnded
from vivace.agent.model import Model
from vivace.agent.options import Approval
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ServerAddress
from vivace.errors import EditRejected, FileProblem

SHOP = """def total(items):
    return sum(items)


def report(items):
    print(total(items))


def other():
    return 1
"""
APP = "from shop import total\n\n\ndef main():\n    return total([1])\n"
RENAMED = SHOP.replace("total", "amount")
RENAME = "rename total to amount, for which the model is asked"


def piece(file: str, begins: str) -> str:
    """What only the prompt for this unit has."""
    return f"The piece of {file} to rewrite:\n```python\n{begins}"


def answer(code: str) -> str:
    return f"```python\n{code}```"


REPLIES = {
    piece("shop.py", "def total"): answer("def amount(items):\n    return sum(items)\n"),
    piece("shop.py", "def report"): answer("def report(items):\n    print(amount(items))\n"),
    piece("app.py", "from shop"): answer("from shop import amount\n"),
    piece("app.py", "def main"): answer("def main():\n    return amount([1])\n"),
}


class Shop:
    """Two files, a journal and a model."""

    def __init__(self, folder: Path, model: Model) -> None:
        self.shop, self.app = folder / "shop.py", folder / "app.py"
        self.shop.write_text(SHOP)
        self.app.write_text(APP)
        self.journal = Journal(folder / "undo")
        self.model = model

    async def edit(
        self,
        presenter: Recorder,
        instruction: str,
        *targets: Path | str,
        approval: Approval = "ask",
        effort: Effort = "low",
    ) -> Entry | None:
        named = [parse_target(str(target)) for target in targets or (self.shop,)]
        scopes = tuple(read_scope(each, to_write=True, instruction=instruction) for each in named)
        async with asyncio.timeout(HANG_S):
            task = EditTask(scopes, instruction, approval, effort)
            return await run_edit(task, self.model, presenter, self.journal)

    @property
    def texts(self) -> tuple[str, str]:
        return self.shop.read_text(), self.app.read_text()


@pytest.fixture
async def client(address: ServerAddress) -> AsyncIterator[ResponsesClient]:
    async with ResponsesClient(address) as client:
        yield client


@pytest.fixture
def play(client: ResponsesClient, tmp_path: Path) -> Callable[..., Shop]:
    def play(changed: dict[tuple[str, str], str] | None = None) -> Shop:
        others = {piece(*key): text for key, text in (changed or {}).items()}
        model = script(tmp_path, replies=REPLIES | others | {"": "Hello."}, context_tokens=20000)
        return Shop(tmp_path, Model(client, model))

    return play


async def test_a_plan_is_shown_then_each_unit_then_one_proposal(play: Callable[..., Shop]) -> None:
    """All units of a plan end in one diff over one file, which is written and undone as one."""
    shop, presenter = play(), Recorder(Accept())
    await shop.edit(presenter, RENAME)
    assert presenter.kinds == [
        EditStarted,
        EditPlanned,
        UnitLocated,
        DiffGrew,
        UnitLocated,
        DiffGrew,
        WritingEnded,
        EditProposed,
        TimesMeasured,
        EditDecided,
        EditApplied,
    ]
    assert shop.texts == (RENAMED, APP)
    assert len(presenter.asked[0].files) == 1
    shop.journal.undo()
    assert shop.texts == (SHOP, APP)


async def test_two_files_are_one_entry(play: Callable[..., Shop]) -> None:
    """Units of two files are proposed, written and undone together."""
    shop, presenter = play(), Recorder(Accept())
    entry = await shop.edit(presenter, RENAME, shop.shop, shop.app)
    assert entry is not None
    assert [Path(file.path).name for file in entry.files] == ["shop.py", "app.py"]
    assert shop.texts == (RENAMED, APP.replace("total", "amount"))
    shop.journal.undo()
    assert shop.texts == (SHOP, APP)


async def test_hunks_are_numbered_through_all_files(play: Callable[..., Shop]) -> None:
    """Of the hunks of two files only the second file's is taken; the first file is not in the entry."""
    shop, presenter = play(), Recorder(AcceptHunks(frozenset({1})))
    entry = await shop.edit(presenter, RENAME, shop.shop, shop.app)
    assert len(presenter.asked[0].hunks) == 2
    assert entry is not None
    assert [Path(file.path).name for file in entry.files] == ["app.py"]
    assert shop.texts == (SHOP, APP.replace("total", "amount"))


async def test_the_users_own_texts_replace_all_files(play: Callable[..., Shop]) -> None:
    """Edited texts come back as a proposal; one that is the file's own is not written."""
    shop, presenter = play(), Recorder(UseText((SHOP.encode(), b"x = 1\n")), Accept())
    entry = await shop.edit(presenter, RENAME, shop.shop, shop.app)
    assert entry is not None
    assert shop.texts == (SHOP, "x = 1\n")
    assert len(entry.files) == 1


async def test_a_rejected_plan_writes_nothing(play: Callable[..., Shop]) -> None:
    """After a no every file is as it was."""
    shop, presenter = play(), Recorder(Reject())
    assert await shop.edit(presenter, RENAME, shop.shop, shop.app) is None
    assert shop.texts == (SHOP, APP)


@pytest.mark.parametrize("moment", [EditPlanned, UnitLocated, DiffGrew, EditProposed, EditDecided])
async def test_an_interrupt_at_any_moment_leaves_all_files(play: Callable[..., Shop], moment: type) -> None:
    """Cancelled in the plan, in a unit or behind the decision: nothing is written and nothing recorded."""
    shop, presenter = play(), Recorder(Accept())
    presenter.stop_at = moment
    with pytest.raises(asyncio.CancelledError):
        await shop.edit(presenter, RENAME, shop.shop, shop.app)
    assert shop.texts == (SHOP, APP)
    assert list(shop.journal.entries()) == []


async def test_a_unit_that_needs_no_change_drops_out(play: Callable[..., Shop]) -> None:
    """An answer that is the old text leaves the unit as it is, and the others are proposed."""
    total, report = (
        "def total(items):\n    return sum(items)\n",
        "def report(items):\n    print(total(items))\n",
    )
    other = "def other():\n    return 2\n"
    texts = {"def total": total, "def report": report, "def other": other}
    shop = play({("shop.py", begins): answer(text) for begins, text in texts.items()})
    presenter = Recorder(Accept())
    await shop.edit(presenter, "Let every function return 2")
    left = [event.unit.name for event in presenter.events if isinstance(event, UnitLeft)]
    assert left == ["total", "report"]
    assert shop.texts == (SHOP.replace("return 1", "return 2"), APP)


async def test_the_rest_of_a_plan_is_offered_where_the_user_is_asked(play: Callable[..., Shop]) -> None:
    """A unit that fails is said plainly; the others are written only because the user says yes."""
    broken = answer("def report(items):\n    print(amount(items)\n")
    shop, presenter = play(changed={("shop.py", "def report"): broken}), Recorder(Accept())
    await shop.edit(presenter, RENAME)
    [left] = [event for event in presenter.events if isinstance(event, UnitLeft)]
    assert "does not parse" in left.problem
    assert presenter.asked[0].missing == (f"report: {left.problem}",)
    assert shop.texts[0] == SHOP.replace("def total", "def amount")


async def test_a_part_of_a_plan_is_not_written_unasked(play: Callable[..., Shop]) -> None:
    """With yes said beforehand, a unit that fails refuses the whole edit."""
    broken = answer("def report(items):\n    print(amount(items)\n")
    shop, presenter = play(changed={("shop.py", "def report"): broken}), Recorder()
    with pytest.raises(EditRejected, match="report: The result does not parse"):
        await shop.edit(presenter, RENAME, approval="always")
    assert shop.texts == (SHOP, APP)


async def test_callers_that_no_longer_fit_join_the_plan(play: Callable[..., Shop]) -> None:
    """A new required parameter brings the caller into the plan, which is shown again."""
    shop = play(
        changed={
            ("shop.py", "def total"): answer(
                "def total(items, rate):\n    cost = sum(items)\n    return rate * cost\n"
            ),
            ("shop.py", "def report"): answer("def report(items):\n    print(total(items, 1))\n"),
        }
    )
    presenter = Recorder(Accept())
    await shop.edit(presenter, "take a rate", f"{shop.shop}:total")
    [plan] = [event for event in presenter.events if isinstance(event, EditPlanned)]
    assert [each.in_words for each in plan.units] == ["total (named)", "report (calls total)"]
    new = SHOP.replace(
        "(items):\n    return sum(items)", "(items, rate):\n    cost = sum(items)\n    return rate * cost"
    )
    assert shop.texts[0] == new.replace("print(total(items))", "print(total(items, 1))")


async def test_a_step_changes_its_own_unit_only(play: Callable[..., Shop]) -> None:
    """What an answer defines beside its unit is left out: it is for another step, or for none."""
    more = "def amount(items):\n    return sum(items)\n\ndef extra():\n    return 0\n"
    shop, presenter = play({("shop.py", "def total"): answer(more)}), Recorder(Accept())
    await shop.edit(presenter, RENAME)
    assert shop.texts[0] == RENAMED


async def test_later_units_see_what_earlier_ones_became(play: Callable[..., Shop]) -> None:
    """The second unit's prompt has the changes of the first."""
    seen = {"+def amount(items):": answer("def report(items):\n    print(amount(items), 2)\n")}
    shop = play()
    shop.model.name = script(
        shop.shop.parent, "second", replies=seen | REPLIES | {"": "Hello."}, context_tokens=20000
    )
    await shop.edit(Recorder(Accept()), RENAME)
    assert "print(amount(items), 2)" in shop.texts[0]


async def test_a_new_file_is_a_unit(play: Callable[..., Shop]) -> None:
    """A path that is not there is made, and undo removes it again."""
    shop, presenter = play(), Recorder(Accept())
    made = shop.shop.parent / "slug.py"
    reply = {"slug.py is a new file": answer("def slug(text):\n    return text.lower()\n")}
    shop.model.name = script(made.parent, "new", replies=reply | {"": "Hello."}, context_tokens=20000)
    await shop.edit(presenter, "write a function slug", made)
    assert made.read_text() == "def slug(text):\n    return text.lower()\n"
    shop.journal.undo()
    assert not made.exists()


@pytest.mark.parametrize(
    ("name", "instruction"),
    [("shpo.py", "add a function"), ("slug.py", "fix the bug"), ("no/folder.py", "write a function")],
)
def test_a_slip_of_the_pen_is_no_new_file(tmp_path: Path, name: str, instruction: str) -> None:
    """A path near one that is there, nothing to add, a folder that is not there: an error each."""
    (tmp_path / "shop.py").write_text(SHOP)
    with pytest.raises(FileProblem, match="does not exist"):
        read_scope(parse_target(str(tmp_path / name)), to_write=True, instruction=instruction)


async def test_a_renaming_alone_needs_no_model(play: Callable[..., Shop]) -> None:
    """Nothing is generated; the plan, the proposal and the undo are as ever."""
    shop, presenter = play(), Recorder(Accept())
    await shop.edit(presenter, "rename total to amount", shop.shop, shop.app)
    assert not any(isinstance(event, DiffGrew | TimesMeasured) for event in presenter.events)
    assert shop.texts == (RENAMED, APP.replace("total", "amount"))
    assert shop.model.waterfalls == []
    shop.journal.undo()
    assert shop.texts == (SHOP, APP)

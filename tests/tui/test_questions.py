"""Questions to the user, one at a time."""

import asyncio
from pathlib import Path

from vivace.agent.events.task import ApprovalAsked
from vivace.agent.loop.calls import Approval
from vivace.tui.presenting.presenter import ScreenPresenter
from vivace.tui.presenting.questions import ApprovalQuestion
from vivace.tui.status import Status
from vivace.tui.transcript.view import Transcript


def asked(call_id: str) -> ApprovalAsked:
    return ApprovalAsked(call_id=call_id, tool="shell", title="make", reason="it runs a program")


async def test_a_question_waits_behind_the_one_that_is_open(tmp_path: Path) -> None:
    """The second one comes when the first is answered, as if it had just been asked; none is lost."""
    presenter = ScreenPresenter(
        Transcript(is_utf8=True, on_scroll=lambda: None), Status("", "", "low"), tmp_path, lambda: None
    )
    tasks = [asyncio.create_task(presenter.approve(asked(call_id))) for call_id in ("a", "b")]
    await asyncio.sleep(0)
    first = presenter.question
    assert isinstance(first, ApprovalQuestion)
    assert first.asked.call_id == "a"
    first.resolve(Approval(is_allowed=False))
    await tasks[0]
    second = presenter.question
    assert isinstance(second, ApprovalQuestion)
    assert second.asked.call_id == "b"
    assert second.shown_s > first.shown_s
    second.resolve(Approval(is_allowed=True))
    assert [(await task).is_allowed for task in tasks] == [False, True]
    assert presenter.question is None

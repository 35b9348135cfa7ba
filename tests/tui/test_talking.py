"""Sending, steering, queueing and stopping at the prompt."""

import os
from pathlib import Path

from tests.tui.conftest import Open
from vivace.tui.transcript.answer import Answer


async def test_how_far_the_model_is_loaded_is_shown(open_screen: Open, tmp_path: Path) -> None:
    """From the first letter on; what the turn does is shown again when the model is loaded."""
    weights = tmp_path / "weights"
    weights.touch()
    os.truncate(weights, 12_000_000_000)  # a hole: nothing is on the disk
    loads = {"load_file": str(weights), "load_bytes": 20_000_000_000}
    async with open_screen(loads=loads) as screen:
        await screen.ready()
        await screen.type("what")
        await screen.sees("loading script.json: 12 of 20 GB")
        os.truncate(weights, 13_000_000_000)
        await screen.sees("loading script.json: 13 of 20 GB")
        await screen.say(" is it?")
        os.truncate(weights, 20_000_000_000)
        await screen.sees("Hello there.")
        await screen.is_gone("loading")


async def test_an_answer_is_shown_below_the_message(open_screen: Open) -> None:
    """Enter sends, the answer follows, and the turn's times come below it."""
    async with open_screen() as screen:
        await screen.ready()
        await screen.say("what now?")
        await screen.sees("› what now?", "Hello there.", "first token", "tok/s")
        await screen.idle()
        assert "ready" in screen.status


async def test_a_message_typed_before_the_session_waits_and_is_sent(open_screen: Open) -> None:
    """The prompt takes messages at once; they wait until there is a server."""
    async with open_screen() as screen:
        await screen.say("what now?")
        await screen.sees("› what now?", "Hello there.")


async def test_enter_steers_and_strikes_the_partial(open_screen: Open) -> None:
    """While the model writes, Enter turns it around; what was abandoned stays, struck through."""
    async with open_screen(step_ms=5) as screen:
        await screen.ready()
        await screen.say("why so long?")
        await screen.sees("2 bottles")
        await screen.say("be brief")
        await screen.sees("↪ be brief")
        answers = [block for block in screen.app.transcript.blocks if isinstance(block, Answer)]
        assert answers[0].is_struck
        assert "2 bottles" in answers[0].text
        await screen.press("escape")
        await screen.idle()


async def test_tab_queues_for_after_the_turn(open_screen: Open) -> None:
    """Tab queues a message; it is shown above the prompt and sent when the turn has ended."""
    async with open_screen(step_ms=2) as screen:
        await screen.ready()
        await screen.say("why so long?")
        await screen.sees("2 bottles")
        await screen.type("which snippet?")
        await screen.press("tab")
        await screen.sees("⏎ which snippet?", "1 queued")
        await screen.sees("› which snippet?", "return 1")
        await screen.is_gone("1 queued")


async def test_escape_stops_and_keeps_partial_draft_and_queue(open_screen: Open) -> None:
    """Esc ends the turn; what the model said, the draft and the queue stay."""
    async with open_screen(step_ms=5) as screen:
        await screen.ready()
        await screen.say("why so long?")
        await screen.sees("2 bottles")
        await screen.type("later")
        await screen.press("tab")
        await screen.type("my draft")
        await screen.press("escape")
        await screen.sees("Stopped.", "2 bottles", "⏎ later", "my draft")
        await screen.idle()
        assert [message.text for message in screen.app.session.talk.queue.messages] == ["later"]


async def test_up_edits_a_queued_message_in_its_place(open_screen: Open) -> None:
    """Up brings the queued message into the prompt, and Enter puts it back changed."""
    async with open_screen(step_ms=5) as screen:
        await screen.ready()
        await screen.say("why so long?")
        await screen.sees("1 bottles")
        for text in ("first", "second"):
            await screen.type(text)
            await screen.press("tab")
        await screen.press("up", "up")
        await screen.sees("editing a queued message")
        await screen.type("ly")
        await screen.press("enter")
        assert [each.text for each in screen.app.session.talk.queue.messages] == ["firstly", "second"]
        await screen.press("escape")
        await screen.idle()


async def test_ctrl_c_interrupts_then_clears_then_leaves(open_screen: Open) -> None:
    """Ctrl+C stops the turn, then clears the line, then asks, then leaves."""
    async with open_screen(step_ms=5) as screen:
        await screen.ready()
        await screen.say("why so long?")
        await screen.sees("1 bottles")
        await screen.type("draft")
        await screen.press("ctrl+c")
        await screen.idle()
        assert screen.app.editor.text == "draft"
        await screen.press("ctrl+c")
        assert screen.app.editor.text == ""
        await screen.press("ctrl+c")
        await screen.sees("again leaves")
        await screen.press("ctrl+c")
        await screen.until(lambda: not screen.app.is_running, "the end")


async def test_ctrl_d_leaves_from_an_empty_line(open_screen: Open) -> None:
    """As in a shell; behind text there is nothing to delete, and before it Ctrl+D deletes a letter."""
    async with open_screen() as screen:
        await screen.ready()
        await screen.type("ab")
        await screen.press("ctrl+d")
        assert screen.app.editor.text == "ab"
        await screen.press("left", "left", "ctrl+d")
        await screen.until(lambda: screen.app.editor.text == "b", "a letter less")
        await screen.press("ctrl+d")
        await screen.until(lambda: not screen.app.editor.text, "none")
        assert screen.app.is_running
        await screen.press("ctrl+d")
        await screen.until(lambda: not screen.app.is_running, "the end")


async def test_ctrl_d_asks_once_while_the_model_writes(open_screen: Open) -> None:
    """One press too many, meant for another program, must not cost a turn."""
    async with open_screen(step_ms=5) as screen:
        await screen.ready()
        await screen.say("why so long?")
        await screen.sees("1 bottles")
        await screen.press("ctrl+d")
        await screen.sees("Ctrl+D again stops the turn and leaves")
        assert screen.app.is_turn_running
        await screen.press("ctrl+d")
        await screen.until(lambda: not screen.app.is_running, "the end")


async def test_a_note_goes_with_the_next_message(open_screen: Open, folder: Path) -> None:
    """A line that begins with # is a note: no turn of its own, told with the next message."""
    del folder
    async with open_screen({"be terse": "Noted.", "": "Hello there."}) as screen:
        await screen.ready()
        await screen.say("#be terse")
        await screen.sees("# be terse")
        assert not screen.app.is_turn_running
        await screen.say("what now?")
        await screen.sees("Noted.")


async def test_a_shell_command_shows_its_output(open_screen: Open, folder: Path) -> None:
    """A line that begins with ! runs in the folder, and its output is shown."""
    (folder / "seen.txt").touch()
    async with open_screen() as screen:
        await screen.ready()
        await screen.say("!ls; exit 3")
        await screen.sees("! ls; exit 3", "seen.txt", "exit code 3")


async def test_a_key_lets_a_model_that_thinks_answer(open_screen: Open) -> None:
    """Ctrl+N ends the thinking, and the answer is shown."""
    replies = {"": "<think>\n" + "straight to it " * 300}
    async with open_screen(replies, step_ms=2, family="qwen3") as screen:
        await screen.ready()
        await screen.say("why so long?")
        session = screen.app.session
        assert session is not None
        await screen.until(lambda: session.talk.history.turns and session.talk.history.turns[-1].response_id)
        await screen.press("ctrl+n")
        answers = screen.app.transcript.blocks
        await screen.until(lambda: any(isinstance(each, Answer) and each.text for each in answers))
        await screen.press("escape")
        await screen.idle()


async def test_thinking_is_folded_and_a_key_unfolds_it(open_screen: Open) -> None:
    """A dim line says how long the model thought; Ctrl+T shows what, and hides it again."""
    replies = {"": "<think>\nHm, a secret.\n</think>\n\nThe answer."}
    async with open_screen(replies, family="qwen3") as screen:
        await screen.ready()
        await screen.say("why?")
        await screen.sees("thought 0 s", "The answer.")
        await screen.idle()
        assert "secret" not in screen.text
        await screen.press("ctrl+t")
        await screen.sees("│ Hm, a secret.", "The answer.")
        await screen.press("ctrl+t")
        await screen.is_gone("secret")


async def test_thinking_that_lasts_is_said_while_it_lasts(open_screen: Open) -> None:
    """Before the answer there is a line that the model thinks, which can be unfolded already."""
    replies = {"": "<think>\n" + "a thought " * 300}
    async with open_screen(replies, step_ms=20, family="qwen3") as screen:
        await screen.ready()
        await screen.say("why so long?")
        await screen.sees("thinking 0 s …")
        await screen.press("ctrl+t")
        await screen.sees("│", "a thought a thought")
        await screen.press("escape")
        await screen.sees("thought", "Stopped.")

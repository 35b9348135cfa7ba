"""Typing, steering, queueing, stopping and connecting again, by the frames that the app sends."""

import re
from typing import TYPE_CHECKING

from tests.web.browser.scripted_host import TALK, ScriptedHost, state, turn

if TYPE_CHECKING:
    from playwright.sync_api import Page

BEGUN = {"type": "turn.started", "turn": 1, "text": "Why?"}


def asked(page: "Page", host: ScriptedHost, operation: str, count: int = 1) -> list[dict[str, object]]:
    """Wait until the host was asked this, and return the requests without their ids."""
    for _ in range(400):
        if len(found := host.asked(operation)) >= count:
            return [{key: value for key, value in each.items() if key not in ("id", "do")} for each in found]
        page.wait_for_timeout(25)
    raise AssertionError(f"{operation} was not asked; but {[each['do'] for each in host.requests]}")


def test_a_draft_is_read_along_and_sent_with_enter(opened: "Page", host: ScriptedHost) -> None:
    """What is typed is prefilled; Enter sends it, and the prompt is empty when the host has it."""
    opened.keyboard.type("What does it do?")
    assert asked(opened, host, "conversation.prefill")[-1]["conversation"] == TALK
    opened.wait_for_function("() => true")
    opened.keyboard.press("Enter")
    assert asked(opened, host, "conversation.send") == [{"conversation": TALK, "text": "What does it do?"}]
    opened.wait_for_function("() => document.getElementById('prompt').value === ''")


def test_a_message_that_does_not_arrive_stays_in_the_prompt(opened: "Page", host: ScriptedHost) -> None:
    """A refused message is not lost, and the reason is shown."""
    host.answers["conversation.send"] = lambda _request: {
        "code": "conversation_busy",
        "message": "A turn runs.",
    }
    opened.keyboard.type("precious words")
    opened.keyboard.press("Enter")
    opened.get_by_text("A turn runs.").wait_for()
    assert opened.input_value("#prompt") == "precious words"


def test_enter_steers_tab_queues_and_escape_stops(opened: "Page", host: ScriptedHost) -> None:
    """While a turn runs the same prompt steers it, lets a message wait, or stops it."""
    host.tell(BEGUN, {"type": "answer.delta", "text": "Because"})
    opened.wait_for_selector(".stop")
    opened.keyboard.type("shorter")
    opened.keyboard.press("Enter")
    assert asked(opened, host, "conversation.steer")[0]["text"] == "shorter"
    opened.wait_for_function("() => document.getElementById('prompt').value === ''")
    opened.keyboard.type("and then tests")
    opened.keyboard.press("Tab")
    assert asked(opened, host, "conversation.queue.add")[0]["text"] == "and then tests"
    opened.keyboard.press("Escape")
    asked(opened, host, "conversation.stop")


def test_a_steer_strikes_out_what_was_written(opened: "Page", host: ScriptedHost) -> None:
    """After a steer the first attempt is struck through, the steer is shown, and the answer goes on below."""
    host.tell(BEGUN, {"type": "attempt.started"}, {"type": "answer.delta", "text": "A long story"})
    host.tell({"type": "attempt.abandoned", "chars": 12, "why": "steered", "steer": "shorter"})
    host.tell({"type": "attempt.started"}, {"type": "answer.delta", "text": "Short."})
    opened.locator(".turn").get_by_text("Short.").wait_for()
    assert opened.locator(".abandoned").inner_text() == "A long story"
    assert "shorter" in opened.locator(".steer").inner_text()


def test_a_queued_message_can_be_changed_and_taken_out(opened: "Page", host: ScriptedHost) -> None:
    """The queue above the prompt edits and removes by the message's id."""
    host.tell(
        BEGUN, {"type": "queue.changed", "messages": [{"id": 4, "text": "later"}, {"id": 5, "text": "last"}]}
    )
    opened.locator(".queue li").first.get_by_role("button", name="edit").click()
    opened.get_by_label("Queued message").fill("much later")
    opened.get_by_label("Queued message").press("Enter")
    assert asked(opened, host, "conversation.queue.edit")[0] == {
        "conversation": TALK,
        "message": 4,
        "text": "much later",
    }
    opened.locator(".queue li").nth(1).get_by_role("button", name="remove").click()
    assert asked(opened, host, "conversation.queue.remove")[0]["message"] == 5


def test_a_lost_connection_is_said_and_nothing_is_doubled(opened: "Page", host: ScriptedHost) -> None:
    """The app says that the server is gone, comes back by itself, and asks only for what it missed."""
    host.tell(BEGUN, {"type": "answer.delta", "text": "One, "})
    opened.get_by_text("One,").wait_for()
    host.is_away = True
    host.drop()
    opened.wait_for_selector(".connection.lost")
    opened.keyboard.type("typed while it was away")
    host.missed = [{"type": "answer.delta", "text": "two, "}]
    host.is_away = False
    opened.wait_for_selector(".connection.connected")
    host.tell({"type": "answer.delta", "text": "three."})
    host.seq -= 1
    host.tell({"type": "answer.delta", "text": "three."})  # with a number that has come already
    host.tell({"type": "answer.delta", "text": " Four."})
    opened.get_by_text("One, two, three. Four.", exact=True).wait_for()
    assert asked(opened, host, "conversation.open", 2)[-1] == {
        "conversation": TALK,
        "epoch": "e1",
        "after": 2,
    }
    assert opened.input_value("#prompt") == "typed while it was away"


def test_an_earlier_message_is_edited_and_sent_again(page: "Page", host: ScriptedHost) -> None:
    """Going back takes back the turn's words and files, and its text stands in the prompt."""
    host.records = [*turn(1, "first", "one"), *turn(2, "second", "two")]
    page.goto(host.url)
    second = page.locator("[aria-label='Turn 2']")
    second.hover()
    second.get_by_role("button", name="Edit and resend").click()
    second.get_by_role("button", name="words and files").click()
    assert asked(page, host, "conversation.rewind")[0] == {
        "conversation": TALK,
        "turn": 2,
        "code": True,
        "talk": True,
    }
    host.tell({"type": "rewound", "turn": 2, "is_talk": True, "is_code": True})
    second.wait_for(state="detached")
    assert page.input_value("#prompt") == "second"


def test_the_meter_the_model_and_the_effort_are_always_in_sight(opened: "Page", host: ScriptedHost) -> None:
    """The head shows how full the window is, and changes who answers and how hard it tries."""
    host.tell(*turn(8, "Why?", "So."))
    opened.get_by_role("button", name=re.compile("Context: 800 of 32,768 tokens")).wait_for()
    opened.get_by_label("Effort").select_option("high")
    assert asked(opened, host, "conversation.set")[0] == {"conversation": TALK, "effort": "high"}
    host.tell(state(effort="high", model="smollm2-135m"))
    opened.wait_for_function("() => document.querySelector('.pick select').value === 'smollm2-135m'")


def test_the_waterfall_is_a_picture_with_words(opened: "Page", host: ScriptedHost) -> None:
    """Each request of the model is a row of bars, and a screen reader is told the figures."""
    times = {
        "name": "answer",
        "queue_ms": 1,
        "prefill_ms": 80,
        "decode_ms": 900,
        "output_tokens": 91,
        "cached_tokens": 400,
        "new_tokens": 9,
    }
    host.tell(BEGUN, {"type": "answer.delta", "text": "So."})
    host.tell({"type": "turn.times", "model": "m", "first_token_ms": 84.0, "turns": [times]})
    host.tell({"type": "turn.ended", "turn": 1, "status": "completed"})
    picture = opened.get_by_role(
        "button", name=re.compile("Where the time went. first token 84 ms · 91 tokens at 100 tok")
    )
    picture.wait_for()
    widths = picture.locator("rect").evaluate_all(
        "bars => bars.map(bar => Number(bar.getAttribute('width')))"
    )
    assert widths[4] > 10 * widths[3] > 10 * widths[0] > 0


def test_the_keys_are_listed(opened: "Page") -> None:
    """A question mark outside of the prompt shows all keys; Esc closes the list."""
    opened.locator(".scroller").focus()
    opened.keyboard.press("?")
    opened.get_by_role("dialog", name="Keys").wait_for()
    opened.keyboard.press("Escape")
    opened.get_by_role("dialog", name="Keys").wait_for(state="detached")


def test_a_command_is_completed_and_run(opened: "Page", host: ScriptedHost) -> None:
    """A slash lists the commands with what they do; one that is whole runs with Enter and is not sent."""
    opened.keyboard.type("/bt")
    opened.locator(".choices-list", has_text="ask beside the conversation").wait_for()
    opened.keyboard.press("Tab")
    opened.keyboard.type("Why?")
    opened.keyboard.press("Enter")
    assert asked(opened, host, "conversation.btw")[0]["question"] == "Why?"
    host.tell({"type": "side.started", "question": "Why?"}, {"type": "side.delta", "text": "Because."})
    opened.get_by_text("Because.").wait_for()
    assert not host.asked("conversation.send")


def test_a_call_of_a_tool_is_allowed_or_refused(opened: "Page", host: ScriptedHost) -> None:
    """What a model wants to run is shown with the reason, and the answer goes back with the user's words."""
    call = {
        "kind": "call",
        "tool": "shell",
        "title": "rm -r build",
        "reason": "It deletes.",
        "can_be_kept": True,
    }
    host.tell(BEGUN, {"type": "question", "question": "q7", **call})
    opened.get_by_text("rm -r build").wait_for()
    opened.get_by_label("Why not").fill("not that one")
    opened.get_by_role("button", name="Refuse").click()
    answer = asked(opened, host, "conversation.approve")[0]
    assert (answer["question"], answer["is_allowed"], answer["reason"]) == ("q7", False, "not that one")

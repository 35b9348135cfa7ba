"""Typing, steering, queueing, stopping and connecting again, by the frames that the app sends."""

import re
from typing import TYPE_CHECKING

from tests.web.browser.scripted_host import TALK, ScriptedHost, state, turn, welcome

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


def test_the_tab_is_called_after_the_conversation_and_its_state(opened: "Page", host: ScriptedHost) -> None:
    """Its title has the folder, the first message, and a mark while a turn runs or asks."""
    called = "title => document.title === title"
    opened.wait_for_function(called, arg="Vivace – logs")
    host.tell(BEGUN)
    opened.wait_for_function(called, arg="● Why? – logs")
    host.tell(
        {"type": "question", "question": "q7", "kind": "call", "tool": "shell", "title": "ls", "reason": ""}
    )
    opened.wait_for_function(called, arg="? Why? – logs")
    host.tell({"type": "question.closed", "question": "q7"})
    host.tell({"type": "turn.ended", "turn": 1, "status": "completed"})
    opened.wait_for_function(called, arg="Why? – logs")


def test_arrows_bring_back_what_was_sent(page: "Page", host: ScriptedHost) -> None:
    """From an empty prompt, message by message, and back to nothing; a draft that was changed stays."""
    host.records = [*turn(1, "first", "one"), *turn(2, "second\nline", "two")]
    page.goto(host.url)
    page.locator("[aria-label='Turn 2']").wait_for()
    prompt = page.locator("#prompt")
    prompt.focus()
    for keys, text in (
        ("ArrowUp", "second\nline"),
        ("ArrowUp", "second\nline"),  # to its first line
        ("ArrowUp", "first"),
        ("ArrowUp", "first"),
        ("ArrowDown", "second\nline"),
        ("ArrowDown", ""),
        ("ArrowUp", "second\nline"),
    ):
        page.keyboard.press(keys)
        page.wait_for_function("text => document.getElementById('prompt').value === text", arg=text)
        page.evaluate("() => new Promise(requestAnimationFrame)")
    page.keyboard.type("!")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert prompt.input_value() == "second\nline!"


def test_who_has_scrolled_up_comes_back_to_the_end(page: "Page", host: ScriptedHost) -> None:
    """A button leads to the end, which is kept in sight from then on; at the end there is none."""
    host.records = [each for n in range(1, 60) for each in turn(n, f"message {n}", "word " * 60)]
    page.goto(host.url)
    last = page.locator("[aria-label='Turn 59']")
    last.wait_for()
    to_end = page.get_by_role("button", name="To the end")
    assert to_end.count() == 0
    page.locator(".scroller").evaluate("each => each.scrollTo(0, 100)")
    last.wait_for(state="detached")
    to_end.click()
    last.wait_for()
    to_end.wait_for(state="detached")
    host.tell({"type": "turn.started", "turn": 60, "text": "one more"})
    page.wait_for_function("""() => {
      const { scrollTop, clientHeight, scrollHeight } = document.querySelector('.scroller');
      return document.querySelector("[aria-label='Turn 60']") && scrollHeight - scrollTop - clientHeight < 2;
    }""")


def test_models_that_must_be_downloaded_stand_by_themselves(page: "Page", host: ScriptedHost) -> None:
    """The picker has those that answer at once first, and a heading over the others."""
    models = [{"name": "here"}, {"name": "far", "is_here": False, "title": "Far 30B"}]
    host.answers["hello"] = lambda _request: {**welcome(), "models": models}
    page.goto(host.url)
    page.locator("optgroup[label='downloaded first'] option", has_text="far").wait_for(state="attached")
    page.locator("select > option", has_text="here").wait_for(state="attached")


def test_a_narrow_talk_has_the_choice_of_asking_too(opened: "Page", host: ScriptedHost) -> None:
    """Where the head has no room for it, the page behind the meter lets edits be written at once."""
    context = {"parts": [], "used_tokens": 0, "window_tokens": 32768}
    host.answers["conversation.context"] = lambda _request: context
    opened.set_viewport_size({"width": 360, "height": 740})
    opened.locator(".meter").click()
    opened.get_by_role("dialog").get_by_label("Edits").select_option("write at once")
    assert asked(opened, host, "conversation.set")[0] == {"conversation": TALK, "approval": "yes"}


COPIED = "It has **two** parts:\n\n```python\nfirst()\n```\n\nand a list:\n\n- one\n- two"


def test_a_whole_answer_is_copied_as_markdown(opened: "Page", host: ScriptedHost) -> None:
    """By a button, as it was written and without what was struck out; it is said, also to a screen reader."""
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    host.tell(BEGUN, {"type": "attempt.started"}, {"type": "answer.delta", "text": "A long story"})
    button = opened.get_by_role("button", name="Copy the answer as Markdown")
    host.tell({"type": "attempt.abandoned", "chars": 12, "why": "steered", "steer": "shorter"})
    host.tell({"type": "attempt.started"}, {"type": "answer.delta", "text": COPIED[:20]})
    opened.locator(".turn").get_by_text("It has").wait_for()
    assert not button.count()  # it is not whole
    host.tell({"type": "answer.delta", "text": COPIED[20:]})
    host.tell({"type": "turn.ended", "turn": 1, "status": "completed"})
    button.click()
    opened.locator(".answer-actions [role=status]", has_text="copied").wait_for(state="attached")
    assert button.inner_text() == "copied"
    assert opened.evaluate("() => navigator.clipboard.readText()") == COPIED


def test_a_block_of_code_is_copied_alone(opened: "Page", host: ScriptedHost) -> None:
    """Each has its own button."""
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    host.tell(*turn(1, "Why?", COPIED))
    opened.get_by_role("button", name="Copy the code").click()
    opened.locator(".code [role=status]", has_text="copied").wait_for(state="attached")
    assert opened.evaluate("() => navigator.clipboard.readText()") == "first()\n"


def test_a_key_copies_the_last_answer(opened: "Page", host: ScriptedHost) -> None:
    """Also while one types; a turn that only edits is passed over; without any answer that is said."""
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened.keyboard.press("Alt+c")
    opened.get_by_text("There is no answer to copy yet.").wait_for()
    host.tell(*turn(1, "Why?", "First."), *turn(2, "And?", "Second."))
    host.tell(
        {"type": "turn.started", "turn": 3, "text": "edit"},
        {"type": "turn.ended", "turn": 3, "status": "stopped"},
    )
    opened.locator(".turn").nth(2).wait_for()
    opened.locator("#prompt").focus()
    opened.keyboard.press("Alt+c")
    opened.get_by_text("The last answer was copied as Markdown.").wait_for()
    assert opened.evaluate("() => navigator.clipboard.readText()") == "Second."

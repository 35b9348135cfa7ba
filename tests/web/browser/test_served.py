"""The app with the real server and face host: in with a ticket, talk, an edit by hunks, undo, steer, stop."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agent.edits.test_flow import FIRST_ONLY, NEW, OLD
from vivace.cli.talk.browsing import entrance
from vivace.client.warm import ServerAddress

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def app(page: "Page", address: ServerAddress, task: Path) -> "Page":
    """The app as `vivace web` opens it, in the folder of the file."""
    page.goto(entrance(address, task.parent))
    page.wait_for_selector(".connection.connected")
    page.wait_for_selector(".head select option[value=medium]", state="attached")
    return page


def say(page: "Page", text: str) -> None:
    page.locator("#prompt").fill(text)
    page.locator("#prompt").press("Enter")


def test_a_ticket_opens_the_app_and_a_question_is_answered(app: "Page", address: ServerAddress) -> None:
    """The address that stays has no ticket; the answer streams in, with its waterfall and the meter."""
    assert app.url.startswith(f"http://127.0.0.1:{address.port}/")
    assert "ticket" not in app.url
    say(app, "Why is that?")
    app.get_by_text("Hello there.").wait_for()
    app.locator(".waterfall rect").first.wait_for(state="attached")
    app.locator("[aria-label^='Context: 0 of']").wait_for(state="detached")
    app.locator(".row-item.current").get_by_text("Why is that?").wait_for()
    app.reload()
    app.get_by_text("Hello there.").wait_for()  # the same conversation again


def test_an_edit_is_kept_by_hunk_and_undone(app: "Page", task: Path) -> None:
    """One hunk is kept and one undone in the file beside; the undo takes back what was written."""
    say(app, "Print the title in capitals in @task.py")
    app.locator(".cm-chunkButtons").nth(1).wait_for()
    assert task.read_text() == OLD
    app.locator(".cm-chunkButtons").first.get_by_role("button", name="keep").click()
    app.locator(".cm-chunkButtons").first.get_by_role("button", name="undo").click()
    app.get_by_text("written", exact=True).wait_for()
    assert task.read_text() == FIRST_ONLY
    app.locator(".edit").get_by_role("button", name="undo").click()
    app.get_by_text("undone", exact=True).wait_for()
    assert task.read_text() == OLD
    app.locator(".edit").get_by_role("button", name="redo").click()
    app.get_by_text("written", exact=True).wait_for()
    assert task.read_text() == FIRST_ONLY


def test_any_edit_of_the_conversation_is_undone_and_redone(app: "Page", task: Path) -> None:
    """An older edit is taken back while a newer one stays; where its lines have changed, it is refused."""
    other = task.with_name("other.py")
    other.write_text(OLD)
    for number, file in enumerate((task, other), start=1):
        say(app, f"Print the title in capitals in @{file.name}")
        app.locator(".question").wait_for()
        app.keyboard.press("Control+Enter")
        app.locator(f"[aria-label='Turn {number}'] .outcome.applied").wait_for()
        app.locator(".stop").wait_for(state="detached")
    app.get_by_role("button", name="Undo the edit of task.py").click()
    app.get_by_role("button", name="Redo the edit of task.py").wait_for()
    assert (task.read_text(), other.read_text()) == (OLD, NEW)
    other.write_text(NEW.replace("upper()", "lower()"))
    app.get_by_role("button", name="Undo the edit of other.py").click()
    app.locator(".notice", has_text="in the same lines").wait_for()
    app.get_by_role("button", name="Redo the edit of task.py").click()
    app.get_by_role("button", name="Undo the edit of task.py").wait_for()
    assert (task.read_text(), other.read_text()) == (NEW, NEW.replace("upper()", "lower()"))


def test_a_running_turn_is_steered_and_stopped(app: "Page") -> None:
    """Enter turns the answer around in the middle; Esc ends it, and what was written stays."""
    say(app, "Why is it so long?")
    app.get_by_text("3 bottles").first.wait_for()
    say(app, "Something else")
    app.locator(".steer").get_by_text("Something else").wait_for()
    app.locator(".stop").wait_for(state="detached")
    say(app, "Why is it so long?")
    app.get_by_text("3 bottles").last.wait_for()
    app.keyboard.press("Escape")
    app.locator(".stop").wait_for(state="detached")


def test_unsaved_text_is_what_an_edit_reads_and_is_never_lost(app: "Page", task: Path) -> None:
    """An edit of a file with unsaved text is of that text."""
    app.keyboard.press("Control+p")
    app.get_by_label("Find a file").fill("task")
    app.locator(".finder [role=option]").click()
    app.locator(".cm-content").first.click()
    app.keyboard.press("Control+End")
    app.keyboard.type("# mine")
    app.get_by_text("not saved").first.wait_for()
    app.wait_for_timeout(400)
    say(app, "Print the title in capitals in @task.py")
    app.locator(".question").wait_for()
    app.keyboard.press("Control+Enter")
    app.get_by_role("button", name="Take the edit").click()
    app.locator(".stop").wait_for(state="detached")
    app.get_by_role("alert").get_by_text("changed on disk").wait_for()
    shown = "\n".join(app.locator(".host:not([hidden]) .cm-line").all_text_contents())
    assert shown == f"{OLD}# mine"
    assert NEW.rstrip("\n") in task.read_text()


def test_conversations_are_renamed_forked_found_and_deleted(app: "Page") -> None:
    """The list beside has all of them, and does to them what the terminal does."""
    say(app, "Why is the sky blue?")
    row = app.locator(".row-item", has_text="Why is the sky blue?")
    app.get_by_text("Hello there.").wait_for()
    row.first.hover()
    row.first.get_by_role("button", name="Rename").click()
    app.locator(".row-item input").fill("About colours")
    app.keyboard.press("Enter")
    named = app.locator(".row-item", has_text="About colours")
    named.wait_for()
    app.get_by_label("Search conversations").fill("sky")
    app.locator(".row-sub", has_text="sky").first.wait_for()
    app.get_by_label("Search conversations").fill("")
    named.first.hover()
    named.first.get_by_role("button", name="Fork").click()
    app.get_by_text("goes on by itself").wait_for()
    app.locator(".turn", has_text="Why is the sky blue?").wait_for()
    count = app.locator(".row-item").count()
    row = app.locator(".row-item.current")
    row.hover()
    row.get_by_role("button", name="Delete").click()
    app.get_by_role("button", name="delete for ever").click()
    app.wait_for_function("count => document.querySelectorAll('.row-item').length < count", arg=count)


def test_a_conversation_that_is_opened_can_be_typed_into(app: "Page") -> None:
    """A click in the list leads into the prompt."""
    say(app, "Why is that?")
    app.get_by_text("Hello there.").wait_for()
    app.locator(".row-item .row-title").first.click()
    app.locator("#prompt:focus").wait_for()


def test_a_conversation_is_live_in_two_tabs(app: "Page") -> None:
    """What is said in one tab appears in the other as it comes, and a question is closed in both."""
    say(app, "Why is that?")
    app.get_by_text("Hello there.").wait_for()
    other = app.context.new_page()
    other.goto(app.url)
    other.get_by_text("Hello there.").wait_for()
    say(other, "Print the title in capitals in @task.py")
    for page in (app, other):
        page.locator(".question").wait_for()
    app.keyboard.press("Control+Backspace")
    for page in (app, other):
        page.locator(".question").wait_for(state="detached")
        page.get_by_text("rejected", exact=True).wait_for()
    other.close()


def test_a_mistyped_file_stays_in_the_prompt(app: "Page") -> None:
    """It is said with the nearest name; nothing is sent, and the text can be corrected."""
    say(app, "shorten @tsak.py")
    app.get_by_text("There is no file tsak.py").wait_for()
    assert app.locator("#prompt").input_value() == "shorten @tsak.py"
    app.locator("#prompt").fill("What is `@tsak.py`?")
    app.locator("#prompt").press("Enter")
    app.get_by_text("Hello there.").wait_for()

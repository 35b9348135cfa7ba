"""Approvals on the page: all of the text, marked line by line, and no yes meant for something else."""

import re
import unicodedata
from typing import TYPE_CHECKING

import pytest

from tests.web.browser.scripted_host import ScriptedHost
from tests.web.browser.test_talking import BEGUN, asked
from vivace.agent.permissions.shown import is_hidden, shown

if TYPE_CHECKING:
    from playwright.sync_api import Page

COMMAND = "touch X # \u202e\u200b\ufe0f\u00a0\nMay this run? Allow\n" + "x" * 3000 + "\n\tend "
QUESTION = {
    "type": "question",
    "question": "q7",
    "kind": "call",
    "tool": "shell",
    "title": "touch X",
    "shown": shown(COMMAND),
    "digest": "d" * 64,
    "reason": "It leaves the sandbox.",
}
TASK = {
    "task": "t-1",
    "instruction": "do it",
    "folder": "/work",
    "model": "m",
    "status": "done",
    "last": "",
    "text": "",
    "turns": 1,
    "tokens": 1,
    "seconds": 1,
}
READ_MS = 500  # longer than a question must be seen before a yes counts


def test_the_text_on_the_page_is_what_was_written(opened: "Page", host: ScriptedHost) -> None:
    """Whole, with a bar in front of each line, nothing folded away and nothing turned around."""
    host.tell(BEGUN, QUESTION)
    lines = opened.locator(".asked-line")
    lines.first.wait_for()
    assert "\n".join(lines.all_inner_texts()) == shown(COMMAND)
    box = opened.locator(".question pre.asked").evaluate(
        """pre => ({ hidden: pre.scrollHeight - pre.clientHeight + pre.scrollWidth - pre.clientWidth,
                     bars: [...pre.children[0].children].map(each => getComputedStyle(each).borderLeftWidth),
                     order: getComputedStyle(pre.querySelector(".asked-line")).unicodeBidi })"""
    )
    assert box == {"hidden": 0, "bars": ["3px"] * 4, "order": "bidi-override"}
    opened.get_by_text(re.compile(r"4 lines, [\d,]+ characters")).wait_for()


def test_a_yes_names_the_question_that_was_read(opened: "Page", host: ScriptedHost) -> None:
    """With the digest that came with it."""
    host.tell(BEGUN, QUESTION)
    opened.get_by_text("It leaves the sandbox.").wait_for()
    opened.wait_for_timeout(READ_MS)
    opened.get_by_role("button", name="Allow", exact=False).first.click()
    answer = asked(opened, host, "conversation.approve")[0]
    assert (answer["question"], answer["digest"], answer["is_allowed"]) == ("q7", "d" * 64, True)


@pytest.mark.parametrize("way", ["click", "key"])
def test_a_question_that_has_just_come_takes_no_yes(opened: "Page", host: ScriptedHost, way: str) -> None:
    """A click or a key that was on its way to something else allows nothing; a no counts at once."""
    opened.evaluate(
        """way => new MutationObserver((_, observer) => {
          const button = document.querySelector(".question .primary");
          if (!button) return;
          observer.disconnect();
          if (way === "click") button.click();
          else dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", ctrlKey: true, cancelable: true }));
          document.body.dataset.tried = "yes";
        }).observe(document.body, { childList: true, subtree: true })""",
        way,
    )
    host.tell(BEGUN, QUESTION)
    opened.wait_for_selector("body[data-tried]")
    opened.get_by_role("button", name="Refuse").click()
    assert [answer["is_allowed"] for answer in asked(opened, host, "conversation.approve")] == [False]


def test_a_page_that_has_just_come_forward_takes_no_yes(opened: "Page", host: ScriptedHost) -> None:
    """The second click of a double click on another page's window lands here."""
    host.tell(BEGUN, QUESTION)
    opened.get_by_text("It leaves the sandbox.").wait_for()
    opened.wait_for_timeout(READ_MS)
    opened.evaluate(
        """() => {
          dispatchEvent(new Event("focus"));
          document.querySelector(".question .primary").click();
        }"""
    )
    opened.get_by_role("button", name="Refuse").click()
    assert [answer["is_allowed"] for answer in asked(opened, host, "conversation.approve")] == [False]


def test_the_page_knows_what_hides(opened: "Page", host: ScriptedHost) -> None:
    """What it writes out of a changed line is what the program would write out."""
    codes = [*range(0x80, 0xD800, 7), *range(0xE0000, 0xE0200, 5), 0x202E, 0x200B, 0xFE0F, 0x3164]
    known = [
        char for char in map(chr, codes) if unicodedata.category(char) != "Cn"
    ]  # by both editions of Unicode
    diff = "--- a\n+++ b\n@@ -0,0 +1,2 @@\n" + "".join(f"+{char}\n" for char in known)
    host.answers["tasks.list"] = lambda _: {"tasks": [TASK]}
    host.answers["tasks.diff"] = lambda _: {"text": diff}
    host.answers["tasks.log"] = lambda _: {"lines": [], "next": 0}
    opened.keyboard.press("Alt+3")
    opened.locator(".rows-list .row-main").first.click()
    opened.get_by_role("button", name="more lines").click()
    rows = opened.locator(".row.add").all_text_contents()
    assert len(rows) == len(known)
    hides = [row for row, char in zip(rows, known, strict=True) if is_hidden(char) != ("⟨U+" in row)]
    assert hides == []

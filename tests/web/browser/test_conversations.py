"""The list of conversations, and what is left of a conversation when something else is shown."""

from itertools import pairwise
from typing import TYPE_CHECKING

from tests.web.browser.scripted_host import FOLDER, Json, ScriptedHost, turn
from tests.web.browser.test_talking import asked

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

MANY_TIMES = 80  # more than the functions of one page, of which the last may still be there
GO_AND_COME_BACK = """async (times) => {
  const show = async (code, selector) => {
    dispatchEvent(new KeyboardEvent("keydown", { altKey: true, code, key: "" }));
    while (!document.querySelector(selector)) await new Promise(requestAnimationFrame);
  };
  for (let n = 0; n < times; n += 1) {
    await show("Digit3", ".page");
    await show("Digit1", "#prompt");
  }
}"""


def row(title: str) -> Json:
    return {
        "conversation": title,
        "title": title,
        "folder": FOLDER,
        "model": "m",
        "started_at_s": 0,
        "used_at_s": 0,
        "turns": 1,
        "is_running": False,
    }


def test_a_search_stays_when_a_turn_ends(opened: "Page", host: ScriptedHost) -> None:
    """What was found is listed until other words are searched for, whatever happens in the talk."""
    host.answers["conversations.list"] = lambda _request: {"conversations": [row("another")]}
    host.answers["conversations.search"] = lambda _request: {"conversations": [row("found")]}
    field = opened.get_by_label("Search conversations")
    field.fill("words")
    opened.get_by_text("found", exact=True).wait_for()
    listed = len(host.asked("conversations.list"))
    searched = len(host.asked("conversations.search"))
    host.tell(*turn(1, "Why?", "So."))
    asked(opened, host, "conversations.search", searched + 1)
    assert len(host.asked("conversations.list")) == listed
    field.fill("")
    opened.get_by_text("another", exact=True).wait_for()


def test_nothing_is_left_of_a_talk_that_is_not_shown(opened: "Page", host: ScriptedHost) -> None:
    """Going to the tasks and back, again and again, keeps no function of the pages that are gone."""
    host.answers["tasks.list"] = lambda _request: {"tasks": []}
    session = opened.context.new_cdp_session(opened)
    alive = [functions(session)]
    for _ in range(3):  # the editor is loaded in one of them; what leaks grows in each
        opened.evaluate(GO_AND_COME_BACK, MANY_TIMES)
        alive.append(functions(session))
    assert min(after - before for before, after in pairwise(alive)) < MANY_TIMES


def functions(session: "CDPSession") -> int:
    """Return how many functions are alive in the page."""
    group = {"objectGroup": "functions"}  # what is found lives until it is released
    prototype = session.send("Runtime.evaluate", {"expression": "Function.prototype", **group})["result"]
    found = session.send("Runtime.queryObjects", {"prototypeObjectId": prototype["objectId"], **group})
    declaration = "function() { return this.length; }"
    counting = {"objectId": found["objects"]["objectId"], "functionDeclaration": declaration}
    number = session.send("Runtime.callFunctionOn", counting)["result"]["value"]
    session.send("Runtime.releaseObjectGroup", group)
    return int(number)

"""The app in every width, in both themes, for every reader: nothing is cut off, everything has a name."""

from typing import TYPE_CHECKING

import pytest

from tests.web.browser.scripted_host import ScriptedHost, file_answers, turn
from tests.web.browser.test_talking import asked

if TYPE_CHECKING:
    from playwright.sync_api import Page

ANSWER = (
    "Words `code`\n\n```python\n" + "x = 1  # " + "long " * 60 + "\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
)
TASK = {
    "task": "t1",
    "instruction": "Add tests",
    "folder": "/",
    "model": "m",
    "status": "running",
    "last": "reads",
    "text": "",
    "turns": 2,
    "tokens": 900,
    "seconds": 12.0,
}
SAMPLE = {"at_s": 1e9, "tokens_per_s": 31.0, "first_token_ms": 90.0, "cached_share": 0.9, "turns": 1}
RESULT = {
    "name": "bench",
    "at_s": 1e9,
    "result": {"decode_tokens_per_s": 31.5, "edit": {"first_token_ms": 80.0}},
}

# As high as one letter, if the words stood in the prompt as text.
IS_ONE_LINE = """() => {
  const prompt = document.getElementById('prompt');
  const width = `${prompt.offsetWidth}px`;
  const [one, all] = ['x', prompt.placeholder].map((text) => {
    const copy = prompt.parentNode.appendChild(prompt.cloneNode());
    Object.assign(copy.style, { position: 'absolute', height: '0', width });
    copy.value = text;
    const height = copy.scrollHeight;
    copy.remove();
    return height;
  });
  return prompt.placeholder && one === all;
}"""


@pytest.fixture
def full(page: "Page", host: ScriptedHost) -> "Page":
    """The app with a conversation, a task and figures."""
    host.records = turn(1, "A question with a long_name_that_cannot_be_broken_" + "x" * 300, ANSWER)
    host.answers["tasks.list"] = lambda _request: {"tasks": [TASK]}
    log = {"type": "tool.started", "title": "read app.py", "tool": "read", "call_id": "c"}
    host.answers["tasks.log"] = lambda request: {"lines": [] if request["after"] else [log], "next": 1}
    host.answers["tasks.diff"] = lambda _request: {"text": "@@ -0,0 +1 @@\n+def test(): pass\n"}
    host.answers["metrics.read"] = lambda _request: {
        "samples": [SAMPLE, {**SAMPLE, "at_s": 1e9 + 60}],
        "every_s": 5,
    }
    host.answers["results.list"] = lambda _request: {"results": [RESULT]}
    page.goto(host.url)
    page.wait_for_selector("[aria-label='Turn 1']")
    return page


def test_nothing_is_cut_off_in_any_width_or_view(full: "Page") -> None:
    """From a phone to a wide screen the page never scrolls sideways, and the prompt is in sight."""
    for width, height in ((360, 740), (768, 900), (1024, 768), (1920, 1080)):
        full.set_viewport_size({"width": width, "height": height})
        for view in ("Digit3", "Digit4", "Digit2", "Digit1"):
            full.keyboard.press(f"Alt+{view}")
            full.evaluate("() => new Promise(requestAnimationFrame)")
            assert full.evaluate("() => document.documentElement.scrollWidth") <= width
        box = full.locator("#prompt").bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= height
        assert full.locator(".meter").is_visible()
    assert full.locator(".side").is_visible()


@pytest.mark.parametrize("width", [280, 360, 800, 1120])
def test_what_the_prompt_suggests_is_not_cut_off(width: int, opened: "Page", host: ScriptedHost) -> None:
    """The words in an empty prompt have room in its one line, on a phone, in a side bar and beside a file."""
    host.answers |= file_answers({"app.py": "x = 1\n"})
    opened.set_viewport_size({"width": width, "height": 700})
    opened.keyboard.press("Control+p")
    opened.locator(".finder [role=option]").click()
    opened.locator(".files").wait_for()
    if width < 1100:
        opened.get_by_role("button", name="Back to the talk").click()
    for is_running in (False, True):
        if is_running:
            host.tell({"type": "turn.started", "turn": 1, "text": "Why?"})
            opened.locator(".stop").wait_for()
        opened.wait_for_function(IS_ONE_LINE)


def test_a_phone_has_one_pane_at_a_time(full: "Page") -> None:
    """The side bar comes with its button, and goes when something was chosen."""
    full.set_viewport_size({"width": 360, "height": 740})
    full.locator(".side").wait_for(state="hidden")
    full.get_by_role("button", name="Show conversations and files").click()
    full.locator(".side").wait_for()
    full.locator(".talk").wait_for(state="hidden")
    full.get_by_role("button", name="New conversation").click()
    full.locator(".talk").wait_for()
    full.locator(".side").wait_for(state="hidden")


def test_a_phone_comes_back_from_every_page(full: "Page") -> None:
    """Tasks and numbers fill a narrow screen, and have the way back to the side bar."""
    full.set_viewport_size({"width": 360, "height": 740})
    full.get_by_role("button", name="Show conversations and files").click()
    for page in ("Numbers", "Tasks"):
        full.get_by_role("tab", name=page).click()
        if page == "Tasks":
            full.locator(".row-main").first.click()
        full.get_by_role("region", name=page).wait_for()
        full.get_by_role("button", name="Show conversations and files").click()
        full.locator(".side").wait_for()


def test_everything_that_can_be_pressed_has_a_name(full: "Page") -> None:
    """A screen reader has a word for each button, field and picture."""
    nameless = """() => {
      const hasName = ({ ariaLabel, textContent, title, placeholder, labels }) =>
        ariaLabel || textContent.trim() || title || placeholder || labels?.length;
      const all = document.querySelectorAll('button, input, select, textarea, [role=img], [role=tab]');
      return [...all].filter(each => !hasName(each)).map(each => each.outerHTML);
    }"""
    for view in ("Digit1", "Digit2", "Digit3", "Digit4"):
        full.keyboard.press(f"Alt+{view}")
        full.wait_for_timeout(100)
        assert full.evaluate(nameless) == []


def test_the_theme_follows_the_system_and_the_switch(full: "Page") -> None:
    """Light and dark come from the system until the switch says otherwise, which is remembered."""
    ground = "() => getComputedStyle(document.body).backgroundColor"
    full.emulate_media(color_scheme="light")
    assert full.evaluate(ground) == "rgb(255, 255, 255)"
    full.emulate_media(color_scheme="dark")
    assert full.evaluate(ground) == "rgb(17, 18, 20)"
    full.get_by_role("button", name="Theme: auto").click()
    full.get_by_role("button", name="Theme: dark").click()
    full.get_by_role("button", name="Theme: light").wait_for()
    assert full.evaluate(ground) == "rgb(255, 255, 255)"
    full.reload()
    full.get_by_role("button", name="Theme: light").wait_for()


def test_a_task_is_watched_steered_and_stopped(full: "Page", host: ScriptedHost) -> None:
    """The page of a task has its log and its changes, and passes on what the user says."""
    full.keyboard.press("Alt+Digit3")
    full.locator(".log").get_by_text("read app.py").wait_for()
    full.get_by_text("def test(): pass").wait_for()
    full.get_by_label("Tell the task something").fill("also the other file")
    full.keyboard.press("Enter")
    assert asked(full, host, "tasks.steer")[0] == {"task": "t1", "text": "also the other file"}
    full.get_by_role("button", name="Stop").click()
    assert asked(full, host, "tasks.stop")[0] == {"task": "t1"}


def test_figures_are_drawn(full: "Page") -> None:
    """Speed over time is a line, a result's figures are bars, and both have words."""
    full.keyboard.press("Alt+Digit4")
    full.get_by_role("img", name="tokens a second: now 31.0").wait_for()
    full.locator(".bars li", has_text="decode tokens per s").get_by_text("31.5").wait_for()

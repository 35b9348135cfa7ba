"""Markdown that comes in pieces: what is drawn at the end does not depend on where the pieces were cut."""

import random
from typing import TYPE_CHECKING

from tests import thorough
from tests.web.browser.scripted_host import ScriptedHost, state, turn

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

PIECES = (
    "# Heading\n\n",
    "A paragraph with `code`, **strong**, *em* and [a link](https://example.org).\n\n",
    "Two lines\nof one paragraph\n\n",
    "- one\n- two\n  - inner\n\n- three\n\n",
    "1. first\n2. second\n\n",
    "".join(f"- item {n}\n" for n in range(40)) + "\n",
    "> quoted\n> twice\n\n",
    "```python\ndef f():\n    return '```'\n```\n\n",
    "```\n\n\nempty lines\n```\n",
    "~~~~js\n```\nlet x;\n~~~~\n\n",
    "    indented code\n\n",
    "| a | b |\n|---|--:|\n| 1 | 2 |\n\n",
    "text\n===\n\n",
    "***\n\n",
    "<b>html</b>\n\n",
    "word " * 2000 + "\n\n",
)
DRAWN = """async number => {
  const text = () => {
    const blocks = document.querySelectorAll(`[aria-label='Turn ${number}'] .prose > *`);
    return [...blocks].map(each => each.tagName === 'HR' ? '***' : each.textContent).join('');
  };
  let same = 0;
  for (let last = ''; same < 3; same = text() === last ? same + 1 : 0) {
    last = text();
    await new Promise(requestAnimationFrame);
  }
  return text();
}"""


def test_pieces_are_drawn_as_the_whole(opened: "Page", host: ScriptedHost) -> None:
    """An answer in random pieces ends up as the same answer in one piece."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for round_ in range(thorough.examples(12)):
        text = "".join(draw.choices(PIECES, k=draw.randint(1, 6)))
        number = 2 * round_ + 1
        host.tell(*turn(number, "whole", text))
        whole = shown(opened, number)
        host.tell({"type": "turn.started", "turn": number + 1, "text": "cut"})
        at = 0
        while at < len(text):
            step = draw.choice((1, 3, 9, 200, 2000))
            host.tell({"type": "answer.delta", "text": text[at : at + step]})
            at += step
            if draw.random() < 0.3 and step > 3:
                opened.evaluate("() => new Promise(requestAnimationFrame)")
        host.tell({"type": "turn.ended", "turn": number + 1, "status": "completed"})
        assert whole
        assert shown(opened, number + 1) == whole, (seed, text)


def shown(page: "Page", number: int) -> str:
    """Return the words and rules of an answer that has ended; only turns near the end are in the page."""
    page.wait_for_selector(f"[aria-label='Turn {number}']")
    page.locator(".stop").wait_for(state="detached")
    return " ".join(page.evaluate(DRAWN, number).split())


def test_colours_that_could_not_be_loaded_come_later(page: "Page", host: ScriptedHost) -> None:
    """The file with the languages is asked for again when code is shown next, and not in every frame."""
    asked: list[bool] = []
    is_there = False

    def answer(route: "Route") -> None:
        asked.append(is_there)
        if is_there:
            route.continue_()
        else:
            route.abort("connectionrefused")

    page.route("**/editor.js*", answer)
    page.goto(host.url)
    page.wait_for_selector(".connection.connected")
    host.tell(*turn(1, "How?", "```python\nimport os\n```\n"))
    page.wait_for_selector(".code pre")
    for number in range(20):
        host.tell(state(faces=number + 2))
        page.get_by_text(f"open in {number + 2} places").wait_for()
    assert 1 <= len(asked) < 10
    is_there = True
    for number in range(400):
        host.tell(state(faces=number % 2 + 2))
        if page.locator(".code .k").count():
            break
        page.wait_for_timeout(25)
    assert page.locator(".code .k").count()
    assert asked.count(True) == 1

"""What a model, a file or a name may say: nothing of it runs, and nothing is fetched."""

from typing import TYPE_CHECKING

import pytest

from tests.web.browser.scripted_host import FOLDER, ScriptedHost, file_answers, turn

if TYPE_CHECKING:
    from playwright.sync_api import Page

EVIL = "http://evil.example"
ATTACKS = [
    "<script>window.pwned = 1</script>",
    f"<img src={EVIL}/x.png onerror='window.pwned = 1'>",
    f"![picture]({EVIL}/x.png)",
    f"![picture][ref]\n\n[ref]: {EVIL}/x.png",
    f"<iframe src={EVIL}></iframe>",
    "<svg onload='window.pwned = 1'>",
    "[click](javascript:window.pwned=1)",
    "[click](JaVaScRiPt:window.pwned=1)",
    "[click](data:text/html,<script>window.pwned=1</script>)",
    "[click](vbscript:x)",
    "<javascript:window.pwned=1>",
    "[click](&#106;avascript:window.pwned=1)",
    f"<style>body {{ background: url({EVIL}/x) }}</style>",
    f'<link rel="stylesheet" href="{EVIL}/x.css"><meta http-equiv="refresh" content="0; url={EVIL}">',
    f'<base href="{EVIL}"><form action="{EVIL}"><button>send</button></form>',
    "`<script>window.pwned = 1</script>`",
    "```html\n<script>window.pwned = 1</script>\n```",
    "```\"><script>window.pwned=1</script>\nx\n```",
    "| <img src=x onerror=window.pwned=1> |\n|---|\n| <b onmouseover=window.pwned=1>x</b> |",
    "- [ ] <input autofocus onfocus=window.pwned=1>",
    "# <script>window.pwned=1</script>",
    "> " * 3000 + "deep",
    "- " * 3000 + "deep",
    "[" * 5000 + "](" * 5000,
    "*" * 20000,
    "x" * 1_000_000,
    "```\n" + "y" * 1_000_000 + "\n```",
    "\u202egnp.exe\u202c \u2066hidden\u2069 \u200b \u0000 \u001b[31m",
    f"{EVIL}/auto and www.evil.example and a@evil.example",
]  # fmt: skip


@pytest.fixture
def fetched(page: "Page", host: ScriptedHost) -> list[str]:
    """Return every address outside of the host that is asked for, as it is."""
    asked: list[str] = []
    page.on(
        "request", lambda request: None if request.url.startswith(host.url) else asked.append(request.url)
    )
    page.on("popup", lambda popup: asked.append(popup.url))
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    return asked


def test_nothing_that_is_written_runs_or_is_fetched(
    page: "Page", host: ScriptedHost, fetched: list[str]
) -> None:
    """Attacks in answers, messages, reasons, titles and errors are text on the page, and nothing more."""
    for number, attack in enumerate(ATTACKS, 1):
        host.records += turn(number, attack[:20_000], attack)
    host.records += [
        {"type": "turn.started", "turn": 900, "text": "last"},
        {
            "type": "edit.located",
            "path": f"{FOLDER}/<img src=x onerror=window.pwned=1>.py",
            "unit": ATTACKS[0],
            "lines": "1",
        },
        {
            "type": "edit.proposed",
            "path": f"{FOLDER}/a.py",
            "unit": ATTACKS[1],
            "diff": f"+{ATTACKS[0]}\n-{ATTACKS[1]}",
        },
        {"type": "error", "code": "x", "message": ATTACKS[1], "hint": ATTACKS[0]},
        {"type": "turn.ended", "turn": 900, "status": "failed"},
    ]
    page.goto(host.url)
    page.wait_for_selector("[aria-label='Turn 900']")
    for _ in ATTACKS:  # each is drawn once
        page.evaluate("() => document.querySelector('.scroller').scrollTop -= 120")
        page.wait_for_timeout(10)
    page.evaluate("() => document.querySelector('.scroller').scrollTop = 0")
    page.wait_for_selector("[aria-label='Turn 1']")
    assert page.get_by_text("<script>window.pwned = 1</script>").count() > 0
    assert page.evaluate("() => window.pwned") is None
    assert (
        page.locator(".turn :is(script, img, iframe, style, link, meta, base, object, embed, form)").count()
        == 0
    )
    assert fetched == []


@pytest.mark.parametrize("attack", [each for each in ATTACKS if "click" in each])
def test_links_that_are_no_addresses_are_no_links(opened: "Page", host: ScriptedHost, attack: str) -> None:
    """Only http, https and mailto become links."""
    host.tell(*turn(1, "x", attack))
    opened.locator(".link-text, .prose p").first.wait_for()
    assert opened.locator(".turn a").count() == 0


def test_a_link_opens_on_a_click_only_and_tells_nothing(opened: "Page", host: ScriptedHost) -> None:
    """A link to the outside has no opener, no referrer, and its address is shown."""
    host.tell(*turn(1, "x", f"[here]({EVIL}/page)"))
    link = opened.get_by_role("link", name="here")
    assert link.get_attribute("rel") == "noopener noreferrer"
    assert link.get_attribute("target") == "_blank"
    assert link.get_attribute("title") == f"{EVIL}/page"


def test_hidden_characters_are_shown(opened: "Page", host: ScriptedHost) -> None:
    """Characters that turn the direction of a text or cannot be seen are written out."""
    host.tell(*turn(1, "x", "access = \u202e'nimda'\u202c"))
    opened.get_by_text("access = ⟨U+202E⟩'nimda'⟨U+202C⟩").wait_for()


def test_names_of_files_are_text(page: "Page", host: ScriptedHost, fetched: list[str]) -> None:
    """A malicious file name in the tree, in quick open and in a tab is shown as it is."""
    name = "<img src=x onerror=window.pwned=1>\u202egnp.py"
    host.answers = file_answers({name: f"# {ATTACKS[0]}\n"})
    page.goto(host.url)
    page.get_by_role("tab", name="Files").click()
    page.get_by_role("treeitem").click()
    page.get_by_role("button", name="<img src=x onerror=window.pwned=1>⟨U+202E⟩gnp.py", exact=True).wait_for()
    page.locator(".cm-content").get_by_text("window.pwned").first.wait_for()
    page.keyboard.press("Control+p")
    page.locator(".finder [role=option]").wait_for()
    assert page.evaluate("() => window.pwned") is None
    assert fetched == []

"""Files beside the talk: the diff that grows, hunks, and texts that are never overwritten."""

from typing import TYPE_CHECKING, Any

import pytest

from tests.web.browser.scripted_host import FOLDER, ScriptedHost, file_answers
from tests.web.browser.test_talking import asked

if TYPE_CHECKING:
    from playwright.sync_api import Page

OLD = 'def one():\n    return 1\n\n\ndef two():\n    return 2\n\n\nNAME = "x"\n'
NEW_TWO = "def two() -> int:\n    return 1 + 1\n"
PATH = f"{FOLDER}/app.py"


@pytest.fixture
def texts(host: ScriptedHost) -> dict[str, str]:
    files = {"app.py": OLD, "other.py": "import app\n"}
    host.answers.update(file_answers(files))
    return files


def live(delta: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "live.diff",
        "path": PATH,
        "unit": "two",
        "first_line": 5,
        "last_line": 6,
        "delta": delta,
        **more,
    }


def question() -> dict[str, Any]:
    hunks = [
        {
            "hunk": 0,
            "old_first": 1,
            "old_count": 1,
            "new_first": 1,
            "new_count": 1,
            "rows": [["-", "def one():"], ["+", "def one() -> int:"]],
        },
        {
            "hunk": 1,
            "old_first": 5,
            "old_count": 2,
            "new_first": 5,
            "new_count": 2,
            "rows": [
                ["-", "def two():"],
                ["-", "    return 2"],
                ["+", "def two() -> int:"],
                ["+", "    return 1 + 1"],
            ],
        },
    ]
    new = OLD.replace("def one():", "def one() -> int:").replace("def two():\n    return 2\n", NEW_TWO)
    file = {"path": PATH, "unit": "app.py", "old_text": OLD, "new_text": new, "hunks": hunks}
    return {"type": "question", "question": "q1", "kind": "edit", "files": [file]}


def shown_lines(page: "Page") -> str:
    return "\n".join(page.locator(".host:not([hidden]) .cm-line").all_text_contents())


def open_file(page: "Page", name: str) -> None:
    page.keyboard.press("Control+p")
    page.get_by_label("Find a file").fill(name)
    page.locator("[role=option]", has_text=name).first.click()
    page.locator(".cm-content").first.wait_for()


def test_the_diff_grows_in_the_file(opened: "Page", host: ScriptedHost, texts: dict[str, str]) -> None:
    """The file opens beside the talk by itself; lines that are not reached yet stand."""
    host.tell(
        {"type": "turn.started", "turn": 1, "text": "edit"},
        {"type": "edit.located", "path": PATH, "unit": "two", "lines": "5-6"},
    )
    host.tell(live("def two() -> int:\n", is_first=True))
    opened.locator(".cm-changedLine", has_text="def two() -> int:").wait_for()
    assert "    return 2" in shown_lines(opened)
    assert opened.locator(".cm-deletedChunk", has_text="def two():").count() == 1
    host.tell(live("    return 1 + 1\n"))
    opened.locator(".cm-changedLine", has_text="return 1 + 1").wait_for()
    assert 'NAME = "x"' in shown_lines(opened)
    assert opened.evaluate("() => document.activeElement.id") == "prompt"
    host.tell({"type": "turn.ended", "turn": 1, "status": "stopped"})
    opened.locator(".strip.live").wait_for(state="detached")
    assert shown_lines(opened).rstrip("\n") == OLD.rstrip("\n")
    assert texts["app.py"] == OLD


@pytest.mark.usefixtures("texts")
def test_what_comes_too_fast_to_be_read_is_coloured_later(opened: "Page", host: ScriptedHost) -> None:
    """Colours cost more than the text: a fast stream has none, and gets them when it is calm again."""
    host.tell({"type": "turn.started", "turn": 1, "text": "edit"}, live("def two():\n", is_first=True))
    opened.locator(".host:not([hidden]) .k", has_text="def").first.wait_for()
    opened.evaluate("""() => {
      const shown = document.querySelector('.host:not([hidden])').shadowRoot;
      window.was_plain = false;
      const watch = () => {
        window.was_plain ||= shown.textContent.includes('value_') && !shown.querySelector('.cm-line .k');
        requestAnimationFrame(watch);
      };
      watch();
    }""")
    host.tell(live("".join(f"    value_{n} = None  # and why\n" for n in range(300))))
    opened.locator(".cm-line", has_text="value_299").wait_for()
    opened.locator(".cm-line", has_text="value_299").locator(".c").wait_for()
    assert opened.evaluate("() => window.was_plain")
    host.tell(live("    return value_0\n"))
    opened.locator(".cm-line", has_text="return value_0").locator(".k").wait_for()


@pytest.mark.usefixtures("texts")
def test_hunks_are_kept_and_undone_in_the_file(opened: "Page", host: ScriptedHost) -> None:
    """Each change has its buttons; when all are decided, the answer names the hunks that are kept."""
    host.tell({"type": "turn.started", "turn": 1, "text": "edit"}, question())
    opened.locator(".cm-chunkButtons").nth(1).get_by_role("button", name="undo").click()
    opened.locator(".hunk-asked.undo").wait_for()
    assert opened.locator(".cm-changedLine", has_text="return 1 + 1").count() == 0
    assert not host.asked("conversation.decide")
    opened.locator(".cm-chunkButtons").first.get_by_role("button", name="keep").click()
    decided = asked(opened, host, "conversation.decide")[0]
    assert (decided["question"], decided["decision"], decided["hunks"]) == ("q1", "hunks", [0])
    host.tell({"type": "question.closed", "question": "q1"})
    opened.locator(".question").wait_for(state="detached")


@pytest.mark.usefixtures("texts")
def test_all_is_kept_by_one_key(opened: "Page", host: ScriptedHost) -> None:
    """Ctrl+Enter keeps all changes, wherever the focus is."""
    host.tell({"type": "turn.started", "turn": 1, "text": "edit"}, question())
    opened.locator(".question").wait_for()
    opened.keyboard.press("Control+Enter")
    assert asked(opened, host, "conversation.decide")[0]["decision"] == "accept"


def test_a_file_is_typed_into_offered_and_saved(
    opened: "Page", host: ScriptedHost, texts: dict[str, str]
) -> None:
    """Unsaved text is offered to edits at once, and Ctrl+S writes it where nothing else has changed."""
    open_file(opened, "app.py")
    opened.locator(".cm-content").first.click()
    opened.keyboard.press("Control+Home")
    opened.keyboard.type("# mine\n")
    until_set(opened, host, f"# mine\n{OLD}")
    opened.keyboard.press("Control+s")
    opened.get_by_text("not saved").wait_for(state="detached")
    assert texts["app.py"] == f"# mine\n{OLD}"
    until_set(opened, host, None)


def until_set(page: "Page", host: ScriptedHost, text: str | None) -> None:
    """Wait until the host has this as the file's unsaved text; on a slow machine it had part of it before."""
    while asked(page, host, "buffers.set")[-1] != {"path": "app.py", "text": text}:
        page.wait_for_timeout(25)


def test_neither_the_disk_nor_unsaved_text_is_overwritten(opened: "Page", texts: dict[str, str]) -> None:
    """A file that changed on disk under unsaved text is asked about; both texts stand until then."""
    open_file(opened, "app.py")
    opened.locator(".cm-content").first.click()
    opened.keyboard.press("Control+Home")
    opened.keyboard.type("# mine\n")
    opened.get_by_text("not saved").first.wait_for()
    texts["app.py"] = "# theirs\n"
    opened.keyboard.press("Control+s")
    opened.get_by_role("alert").get_by_text("changed on disk").wait_for()
    assert texts["app.py"] == "# theirs\n"
    assert shown_lines(opened).startswith("# mine\n")
    opened.get_by_role("button", name="Write mine").click()
    opened.get_by_role("alert").wait_for(state="detached")
    opened.get_by_text("not saved").wait_for(state="detached")
    assert texts["app.py"] == f"# mine\n{OLD}"


def test_a_file_without_unsaved_text_follows_the_disk(
    opened: "Page", host: ScriptedHost, texts: dict[str, str]
) -> None:
    """What another program writes is shown, and nothing is asked."""
    open_file(opened, "app.py")
    texts["app.py"] = "# theirs\n"
    host.tell({"type": "file.changed", "path": "app.py", "digest": "x"})
    opened.locator(".cm-line", has_text="# theirs").wait_for()
    assert opened.get_by_role("alert").count() == 0


def test_line_ends_stay_as_they_are(opened: "Page", texts: dict[str, str]) -> None:
    """A file with Windows line ends is saved with them; one with several kinds is only shown."""
    texts["app.py"], texts["other.py"] = "a = 1\r\nb = 2\r\n", "a = 1\r\nb = 2\n"
    open_file(opened, "app.py")
    opened.locator(".cm-content").first.click()
    opened.keyboard.press("Control+Home")
    opened.keyboard.type("c = 3\n")
    opened.keyboard.press("Control+s")
    opened.get_by_text("not saved").wait_for(state="detached")
    assert texts["app.py"] == "c = 3\r\na = 1\r\nb = 2\r\n"
    open_file(opened, "other.py")
    opened.get_by_text("several kinds of line ends").wait_for()
    opened.locator(".cm-content").first.click()
    opened.keyboard.type("x")
    assert opened.get_by_text("not saved").count() == 0

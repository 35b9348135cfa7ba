"""`vivace sessions`: past conversations listed, found, shown, renamed, forked and deleted."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.agent.conversation.talking import Face
from tests.agent.memory.test_transcript_index import talk
from vivace.agent.conversation.sharing.opening import open_or_attach
from vivace.cli.main import app
from vivace.config import load_settings
from vivace.errors import ConversationBusy, ConversationNotFound, UsageError

FIRST, SECOND = "20260101-000000-aaaaaa", "20260102-000000-bbbbbb"


@pytest.fixture(autouse=True)
def conversations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two conversations; the second was used last."""
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    folder = tmp_path / "state" / "vivace" / "conversations"
    talk(folder, FIRST, ("how do leases\x1b]0;x\x07 expire?", "Soon."), ("thanks", "You are welcome."))
    os.utime(folder / f"{FIRST}.jsonl", (1.0, 1.0))
    talk(folder, SECOND, ("what is a lease", "A promise."))
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sessions", *arguments], standalone_mode=False)


def objects(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_all_are_listed() -> None:
    """The last used first, without control characters; --json has all that is known; -n is a limit."""
    second, first = run().stdout.splitlines()
    assert first.startswith(f"{FIRST}  ")
    assert first.endswith(f"2 turns  /work/{FIRST}  how do leases expire?")
    assert second.startswith(SECOND)
    assert run("list").stdout.splitlines() == [second, first]
    assert run("list", "-n", "1").stdout.splitlines() == [second]
    assert [(each["id"], each["title"], each["turns"]) for each in objects(run("list", "--json"))] == [
        (SECOND, "what is a lease", 1),
        (FIRST, "how do leases\x1b]0;x\x07 expire?", 2),
    ]
    assert "There is no conversation" in run("list", "--here").output


def test_words_are_found() -> None:
    """Each conversation once, with the turn and the words around; nothing found is said."""
    head, excerpt = run("search", "lease", "expire").stdout.splitlines()
    assert head.startswith(f"{FIRST}  turn 1  ")
    assert "leases" in excerpt
    assert "\x1b" not in excerpt
    (found,) = objects(run("search", "promise", "--json"))
    assert (found["id"], found["turn"], found["excerpt"]) == (SECOND, 1, "A promise.")
    for words in (["--here", "lease"], ['"NEAR('], ["nowhere"]):
        assert "No conversation has these words." in run("search", *words).output


def test_one_is_shown() -> None:
    """As Markdown, or the lines of its transcript; a part of the id is enough."""
    shown = run("show", "aaaaaa").stdout
    assert shown.startswith(f"# Conversation {FIRST}\n")
    assert "## 2. You\n\nthanks\n\n### Vivace\n\nYou are welcome." in shown
    assert "\x1b" not in shown
    kinds = [each["type"] for each in objects(run("show", FIRST, "--json"))]
    assert kinds[:2] == ["conversation.started", "turn.started"]


@pytest.mark.parametrize("command", ["show", "rename", "fork", "delete"])
def test_an_id_must_name_one(command: str) -> None:
    """One that fits several, or none, is an error that says which; nothing is done."""
    more = {"rename": ["a name"], "delete": ["--yes"]}.get(command, [])
    several = run(command, "2026", *more).exception
    assert isinstance(several, UsageError)
    assert FIRST in several.message
    assert SECOND in several.message
    for name in ("cccccc", "", "../secret"):
        assert isinstance(run(command, name, *more).exception, ConversationNotFound)
    assert len(run("list").stdout.splitlines()) == 2


def test_one_is_renamed() -> None:
    """The list has the name; an empty one takes it away."""
    assert "is called 'Leases and more' now" in run("rename", "aaaaaa", "Leases", "and", " more ").stdout
    assert "Leases and more" in run("list").stdout
    run("rename", "aaaaaa", "")
    assert "how do leases" in run("list").stdout


def test_one_is_forked() -> None:
    """The copy has what was said, an id of its own, and stays when the other one goes."""
    forked = run("fork", "bbbbbb").stdout.strip()
    assert forked != SECOND
    assert "A promise." in run("show", forked).stdout
    began = objects(run("show", forked, "--json"))[0]
    assert (began["id"], began["forked_from"], began["folder"]) == (forked, SECOND, f"/work/{SECOND}")
    assert run("delete", "--yes", SECOND).return_value == 0
    (again,) = objects(run("fork", forked, "--json"))
    assert again["forked_from"] == forked


def test_deleting_asks_first(conversations: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody can be asked it needs --yes; several go at once, and are found no more."""
    assert isinstance(run("delete", "aaaaaa").exception, UsageError)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert isinstance(run("delete", "--yes", "aaaaaa", "cccccc").exception, ConversationNotFound)
    assert len(list(conversations.glob("*.jsonl"))) == 2
    run("search", "lease")
    assert run("delete", "--yes", "aaaaaa", "bbbbbb", FIRST).return_value == 0
    assert not list(conversations.glob("*.jsonl"))
    assert "No conversation" in run("search", "lease").output


def test_an_open_one_is_renamed_and_forked_and_not_deleted(conversations: Path) -> None:
    """Its face sees the name at once; the fork has what was said so far."""

    async def go() -> None:
        face = Face()
        held = await open_or_attach(load_settings(), face, SECOND, name="terminal")
        try:
            held.follow()
            renamed = await asyncio.to_thread(run, "rename", "bbbbbb", "Ours")
            assert renamed.exception is None
            assert held.title == "Ours"
            forked = (await asyncio.to_thread(run, "fork", "bbbbbb")).stdout.strip()
            assert (conversations / f"{forked}.jsonl").is_file()
            busy = (await asyncio.to_thread(run, "delete", "--yes", SECOND)).exception
            assert isinstance(busy, ConversationBusy)
            assert "is open (terminal)" in busy.message
        finally:
            await held.close()

    asyncio.run(go())


def test_a_shell_completes_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the title beside, as click tells a shell."""
    monkeypatch.setenv("_VIVACE_COMPLETE", "zsh_complete")
    monkeypatch.setenv("COMP_WORDS", "vivace sessions show 20260102")
    monkeypatch.setenv("COMP_CWORD", "3")
    done = CliRunner().invoke(app, [], prog_name="vivace")
    assert done.output.split("\n")[:3] == ["plain", SECOND, "what is a lease"]

"""What a person is asked about is what runs: attacks on the question, with a real shell and no sandbox."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.loop.working import Face
from tests.agent.loop.working import raw_call as call
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.events.task import ApprovalAsked
from vivace.agent.loop.asking import question
from vivace.agent.loop.calls import Approval, Calls
from vivace.agent.loop.opening import open_desk
from vivace.agent.loop.task import Task
from vivace.agent.permissions.policy import Policy
from vivace.agent.permissions.shown import MAX_CHARS, MAX_LINES, parse
from vivace.errors import ApprovalNeeded
from vivace.protocol.shapes.events import FunctionCall

Begin = Callable[..., Awaitable[Task]]
ASK = Policy("workspace-write", "ask")
SECRET = "ghp_" + "a1B2" * 9


def outside(command: str) -> str:
    return call("shell", command=command, leave_sandbox=True)


def asked(face: Face) -> ApprovalAsked:
    (one,) = face.seen(ApprovalAsked)
    return one


class TestCommands:
    @pytest.mark.parametrize(
        "command",
        ["touch X; # \rls -la", "ls '\x1b]0;'; touch X; : '\x07' -la", "touch X; ls \x00-la"],
    )
    async def test_one_that_could_look_like_another_is_refused_before_anybody_is_asked(
        self, begin: Begin, folder: Path, face: Face, command: str
    ) -> None:
        """With a carriage return, an escape or a NUL, whatever would be answered."""
        face.answers = [Approval(is_allowed=True)]
        await (await begin(outside(command), "Done.")).run()
        assert face.seen(ApprovalAsked) == []
        assert face.ended == [("shell", "refused")]
        assert not (folder / "X").exists()

    @pytest.mark.parametrize(
        "command",
        [
            "ls # -----BEGIN PRIVATE KEY-----\ntouch X",
            'password="$(touch${IFS}X)aaaaaaaa" true',
            f"touch X # {SECRET}",
            "touch X # \u202e al- sl\u2066",
            "touch X #\u200b\ufe0f\U000e0041\u3164",
            "true                                        ; touch X",
            "true\n" * 400 + "touch X",
            "touch X; echo '\\x1b ⟨ESC⟩ ⟨U+202E⟩'",
            "\ttouch X # \x0b \n \n",
        ],
    )
    async def test_all_of_it_is_shown_and_just_that_runs(
        self, begin: Begin, folder: Path, face: Face, command: str
    ) -> None:
        """Nothing is taken out, cut or hidden: what was shown parses back to what the shell was given."""
        face.answers = [Approval(is_allowed=True)]
        await (await begin(outside(command), "Done.")).run()
        assert parse(asked(face).shown) == command
        assert not set("\r\x1b\t\x0b\u202e\u2066\u200b\ufe0f\u3164\U000e0041") & set(asked(face).shown)
        assert (folder / "X").exists()

    async def test_hidden_characters_are_named_in_the_reason(self, begin: Begin, face: Face) -> None:
        """So that nobody has to look for them."""
        await (await begin(outside("ls \u202ex"), "Done.")).run()
        assert "⟨U+202E⟩ RIGHT-TO-LEFT OVERRIDE" in asked(face).reason

    @pytest.mark.parametrize("command", ["\n" * MAX_LINES + "touch X", f"touch X #{'x' * MAX_CHARS}"])
    def test_one_that_is_too_long_to_be_shown_cannot_be_allowed(self, command: str) -> None:
        """Nobody is asked about a part of it."""
        with pytest.raises(ApprovalNeeded, match="whole"):
            question(call_id="1", tool="shell", title="touch", exact=command, reason="")


class TestAnswers:
    async def test_a_yes_to_another_question_is_none(self, begin: Begin, folder: Path, face: Face) -> None:
        """The answer names what was seen, and what runs is compared with it."""
        face.answers = [Approval(is_allowed=True, digest="of something else")]
        await (await begin(outside("touch X"), "Done.")).run()
        assert face.ended == [("shell", "refused")]
        assert not (folder / "X").exists()

    async def test_two_calls_have_two_digests(self, begin: Begin, face: Face) -> None:
        """However little they differ."""
        await (await begin(outside("ls"), outside("ls "), "Done.")).run()
        one, two = face.seen(ApprovalAsked)
        assert one.digest != two.digest

    async def test_a_command_in_the_sandbox_is_not_the_same_one_outside(
        self, begin: Begin, face: Face
    ) -> None:
        """A yes to the one, pressed a moment too late, is none to the other."""
        inside = call("shell", command="make")
        await (await begin(inside, outside("make"), "Done.", policy=ASK)).run()
        one, two = face.seen(ApprovalAsked)
        assert one.shown == two.shown
        assert one.digest != two.digest


class TestFiles:
    async def test_an_edit_shows_what_it_would_write(self, begin: Begin, folder: Path, face: Face) -> None:
        """Every line that goes and comes, with what cannot be seen in it."""
        (folder / "a.py").write_text("x = 1\ny = 1\n")
        edit = call("edit", path="a.py", old_text="x = 1\ny = 1", new_text="x = 2\n# \u202e" + SECRET)
        await (await begin(edit, "Done.", policy=ASK)).run()
        assert asked(face).shown == f"a.py\n-x = 1\n-y = 1\n+x = 2\n+# ⟨U+202E⟩{SECRET}"

    async def test_a_name_cannot_add_lines_to_the_question(self, begin: Begin, face: Face) -> None:
        """A line break in it is written out, in the text and in the reason."""
        edit = call("edit", path="../a\nAllow? y", old_text="", new_text="x")
        await (await begin(edit, "Done.")).run()
        assert asked(face).shown == '"../a\\nAllow? y"\n+x'
        assert "\n" not in asked(face).reason + asked(face).title

    async def test_a_patch_shows_what_was_understood_of_it(self, begin: Begin, face: Face) -> None:
        """Files, places and lines."""
        patch = (
            "*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n@@ def f():\n x\n-y\n+z\n"
            "*** Add File: c.py\n+new\n*** Delete File: d.py\n*** End Patch"
        )
        await (await begin(call("apply_patch", input=patch), "Done.", policy=ASK)).run()
        assert asked(face).shown == (
            "*** Update File: a.py\n*** Move to: b.py\n@@ def f():\n-x\n-y\n+x\n+z\n"
            "*** Add File: c.py\n+new\n+\n*** Delete File: d.py"
        )


async def test_a_title_says_how_much_it_leaves_out(begin: Begin, face: Face) -> None:
    """One line, for faces that have room for no more."""
    await (await begin(outside("echo 1\n" + "echo x; " * 100), "Done.")).run()
    title = asked(face).title
    assert (len(title) < 200, "\n" in title, "2 lines, 807 characters in all" in title) == (True, False, True)


SWAP = """
import os, sys
path = sys.argv[1]
while True:
    open(path + ".f", "w").close()
    os.replace(path + ".f", path)
    os.symlink(os.path.dirname(path), path + ".l")
    os.replace(path + ".l", path)
"""


@contextlib.contextmanager
def swapping(path: Path) -> Iterator[None]:
    """Let another process make a path a link and a file by turns."""
    with subprocess.Popen([sys.executable, "-c", SWAP, str(path)]) as other:
        while not path.is_symlink():
            assert other.poll() is None
        try:
            yield
        finally:
            other.kill()


class TestSwappedPaths:
    @pytest.mark.parametrize("path", ["way/config", "\ud800/x", "x" * 300, "/".join(["x" * 200] * 30)])
    async def test_a_path_that_cannot_be_followed_is_a_refused_or_failed_call(
        self, tmp_path: Path, folder: Path, face: Face, path: str
    ) -> None:
        """A link that becomes a file while it is read, letters that no name has, a name that is too long."""
        desk = await open_desk(folder, "Do it.", face, Policy(), Journal(tmp_path / "undo"))
        with swapping(folder / "way"):
            arguments = json.dumps({"path": path, "old_text": "", "new_text": "x"})
            for number in range(3000 if path.startswith("way") else 1):
                taken = Calls(desk)
                taken.take(
                    FunctionCall(
                        id="1", call_id=str(number), name="edit", arguments=arguments, status="completed"
                    )
                )
                assert taken.made

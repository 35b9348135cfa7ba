"""A second process swaps a folder and a link to elsewhere, and a file and a link, while tools work on them.

Run as a program: `python -m tests.agent.tools.swapping FOLDER TOOL UID`, with the rights of the user UID. It
prints how often a call was done, and each thing that should not have happened. Owns the attack and its
bounded count of rounds. Does not own what is expected (`test_swapped`).
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from tests.agent.tools.workbench import context_for
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.permissions.decision import Situation, decide
from vivace.agent.tools.apply_patch import ApplyPatch
from vivace.agent.tools.base import Tool, ToolContext
from vivace.agent.tools.edit import Edit
from vivace.agent.tools.list_files import ListFiles
from vivace.agent.tools.read import Read
from vivace.agent.tools.search import Search
from vivace.errors import VivaceError
from vivace.web import files

SECRET = "AKIA-SECRET"
SWAPS = """
import ctypes, os, select, sys
libc = ctypes.CDLL(None, use_errno=True)
sys.stdin.readline()
os.chdir(sys.argv[1])
print("begun", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(100):
        for one, other in ((b"sub", b"to_outside"), (b"file", b"to_secret")):
            libc.renameat2(-100, one, -100, other, 2)  # RENAME_EXCHANGE
"""


class Swapper:
    """Swaps as fast as one process can, from `begin` on."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-I", "-c", SWAPS, str(root)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def begin(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == b"begun\n"

    def end(self) -> None:
        assert self._process.poll() is None, "the swapping ended"
        self._process.communicate()


class Attack:
    def __init__(self, folder: Path) -> None:
        self.root, self.outside = folder / "work", folder / "outside"
        self.journal = Journal(folder / "journal", self.root)
        self.counts: Counter[str] = Counter()
        self.leaks: list[str] = []
        for place in (self.root / "sub", self.outside):
            place.mkdir(parents=True)
        (self.root / "sub" / "notes.txt").write_text("open: public\n")
        (self.root / "file").write_text("open: public\n")
        (self.outside / "notes.txt").write_text(f"{SECRET}: public\n")
        (self.outside / f"{SECRET}.txt").write_text("")
        (self.root / "to_outside").symlink_to(self.outside)
        (self.root / "to_secret").symlink_to(self.outside / "notes.txt")
        self.before = self._outside_now()

    async def call(self, tool: Tool, context: ToolContext, **arguments: Any) -> None:
        """Judge a call and do it, as the loop does."""
        given = tool.parse(arguments.get("patch") or json.dumps(arguments))
        try:
            needs = tool.needs(given, context)
        except VivaceError:
            self.counts["refused"] += 1
            return
        verdict = decide(needs, context.policies, Situation(is_tainted=False, has_sandbox=True))
        if verdict.kind != "allow":
            self.counts["refused"] += 1
            return
        await self.tried("done", lambda: tool.run(given, context, needs))

    async def tried(self, name: str, work: Callable[[], Awaitable[Any]]) -> None:
        try:
            said = str(await work())
        except VivaceError as error:
            said, name = f"{error.message} {error.hint}", f"{name}: failed"
        self.counts[name] += 1
        if SECRET in said:
            self.leaks.append(said)

    def look_outside(self) -> None:
        if (now := self._outside_now()) != self.before:
            self.leaks.append(f"written outside: {now}")
            self.before = now

    def _outside_now(self) -> dict[str, str]:
        found = self.outside.rglob("*")
        return {path.name: path.read_text() if path.is_file() else "a folder" for path in found}

    # ---- the rounds -------------------------------------------------------------------------------

    async def read(self) -> None:
        for _ in range(300):
            for path in ("sub/notes.txt", "file"):
                await self.call(Read(), context_for(self.root), path=path)

    async def list(self) -> None:
        for _ in range(200):
            await self.call(ListFiles(), context_for(self.root), path="sub")
            await self.call(ListFiles(), context_for(self.root))

    async def search(self) -> None:
        searches = {Search("")} | ({Search()} if shutil.which("rg") else set())
        for _ in range(12):
            for path, search in product((".", "sub", "file"), searches):
                await self.call(search, context_for(self.root), path=path, pattern="public")

    async def edit(self) -> None:
        for number in range(120):
            for path in ("sub/notes.txt", "file"):
                context = context_for(self.root)
                words = ("public", "Public") if number % 2 else ("Public", "public")
                await self.call(Edit(), context, path=path, old_text=words[0], new_text=words[1])
                await self.call(Edit(), context, path=f"sub/new/{number}", old_text="", new_text="made\n")
                await self._flush_and_undo(context)

    async def apply_patch(self) -> None:
        for number in range(120):
            context = context_for(self.root)
            words = ("public", "Public") if number % 2 else ("Public", "public")
            patch = "*** Begin Patch\n*** Update File: sub/notes.txt\n@@\n-open: {}\n+open: {}\n".format(
                *words
            )
            patch += f"*** Add File: sub/{number}\n+made\n*** End Patch"
            await self.call(ApplyPatch(), context, patch=patch)
            await self._flush_and_undo(context)

    async def browser(self) -> None:
        async def written(path: str, text: str) -> str:
            read = files.read(self.root, path)
            files.write(self.root, path, read.text.replace("open", text), read.digest)
            return read.text

        async def made(path: str) -> str:
            return files.write(self.root, path, "made", "")

        for number in range(150):
            await self.tried("done", lambda: written("sub/notes.txt", "open"))
            await self.tried("done", lambda: written("file", "open"))
            await self.tried("done", lambda number=number: made(f"sub/made/{number}"))  # type: ignore[misc]
            self.look_outside()

    async def _flush_and_undo(self, context: ToolContext) -> None:
        await self.tried("written", lambda: context.writes.flush(self.journal, "test"))

        async def undo() -> None:
            self.journal.undo()

        await self.tried("undone", undo)
        self.look_outside()


async def _main(folder: str, tool: str, user: str) -> None:
    swapper = Swapper(Path(folder) / "work")
    await asyncio.to_thread(int)  # what it imports may not be readable for the other user
    if int(user) != os.getuid():
        os.chown(folder, int(user), int(user))
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    attack = Attack(Path(folder))
    swapper.begin()
    await getattr(attack, tool)()
    swapper.end()
    attack.look_outside()
    print(json.dumps({"counts": attack.counts, "leaks": attack.leaks[:5]}))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(_main(*sys.argv[1:]))

"""The undo journal on disk, damaged and hostile: nothing is written elsewhere, and only our errors come."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.edits.apply.entries import EntryFolder, Step
from vivace.agent.edits.apply.journal import Change, Journal
from vivace.agent.edits.apply.source import new_source, read_source
from vivace.errors import VivaceError

DAMAGES = st.lists(
    st.tuples(
        st.integers(0, 3),  # which file of the journal
        st.sampled_from(["flip", "insert", "cut", "pending", "drop"]),
        st.integers(0, 5000),
        st.binary(min_size=1, max_size=9),
    ),
    min_size=1,
    max_size=6,
)
# From the folder of a test on. A link `sub/out` leads to `outside`, `sub/hooks` into `.git/hooks`.
PATHS = st.sampled_from(
    [
        *("work/sub/out/x", "work/sub/hooks/x", "work/../outside/x", "work/sub/../../outside/x"),
        *("work/sub/out", "work/a", "work/new", "work/./a", "work/a/b", "work/\0", "work/\ud800", "work//a"),
        *("work/.git/hooks/x", "work/.envrc", "work/" + "n" * 300, "work", "work/sub"),
    ]
)
NUMBERS = st.integers(-(2**70), 2**70) | st.sampled_from([0, 1, 2, 3])
HASHES = st.none() | st.text("0123456789abcdef", min_size=64, max_size=64) | st.text(max_size=8)
FILES = st.fixed_dictionaries(
    {
        "path": PATHS,
        "is_relative": st.booleans(),
        "unit": st.text(max_size=4),
        "before_sha256": HASHES,
        "after_sha256": HASHES,
        "before_size": NUMBERS,
        "after_size": st.none() | NUMBERS,
        "mode": st.none() | NUMBERS,
        "root": st.just("") | PATHS,
    }
)
HEADERS = st.fixed_dictionaries(
    {
        "number": NUMBERS,
        "kind": st.sampled_from(["edit", "undo", "redo", "other"]),
        "instruction": st.text(max_size=4),
        "recorded_at_s": st.floats(allow_nan=False, allow_infinity=False) | st.just(1.0),
        "files": st.lists(FILES, max_size=3),
        "reverses": st.lists(NUMBERS, max_size=2),
    }
)


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A workspace with links that lead out, and a place that nothing may be written to."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(os.path.realpath(name))
        for each in ("work/sub", "work/.git/hooks", "outside"):
            (folder / each).mkdir(parents=True)
        (folder / "outside" / "x").write_text("theirs\n")
        (folder / "work" / "sub" / "out").symlink_to(folder / "outside")
        (folder / "work" / "sub" / "hooks").symlink_to("../.git/hooks")
        with contextlib.chdir(folder / "outside"):
            yield folder


def apart(folder: Path) -> dict[str, bytes]:
    """Return what is outside of the workspace and of the journal, and in protected places."""
    found = [*folder.glob("*"), *(folder / "outside").rglob("*"), *(folder / "work" / ".git").rglob("*")]
    found += (folder / "work").glob(".envrc")
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in found}


def exercise(journal: Journal, folder: Path) -> None:
    """Do all that reads the journal. Only errors of ours may come."""
    ways = [
        journal.heal,
        lambda: [datetime.fromtimestamp(each.recorded_at_s) for each in journal.entries()],
        journal.undo,
        journal.redo,
        lambda: journal.undo(folder / "work"),
        *(lambda number=number: journal.undo(number=number) for number in range(4)),  # type: ignore[misc]
        *(lambda number=number: journal.redo(number=number) for number in range(4)),  # type: ignore[misc]
        lambda: journal.undo_all({1, 2, 3}),
        lambda: journal.rewind(0),
        lambda: journal.rewind(1, folder / "work"),
    ]
    for way in ways:
        with contextlib.suppress(VivaceError):
            way()


@pytest.mark.fuzz
@given(DAMAGES)
def test_a_damaged_journal_writes_nothing_elsewhere(damages: list[tuple[int, str, int, bytes]]) -> None:
    """Whichever bytes are lost, added or changed in its files."""
    with folder() as top:
        journal, work = Journal(top / "journal", top / "work"), top / "work"
        journal.apply_all([Change(new_source(work / "a"), b"1\n2\n3\n", "task")], "make")
        journal.apply_all([Change(read_source(work / "a"), b"1\ntwo\n3\n", "task")], "edit")
        journal.apply_all([Change(read_source(work / "a"), None, "task")], "delete")
        journal.undo()
        files = sorted((top / "journal").glob("*.edit"))
        before = apart(top)
        for which, how, at, data in damages:
            _damage(files[which % len(files)], how, at, data)
        exercise(journal, top)
        assert apart(top) == before


def _damage(file: Path, how: str, at: int, data: bytes) -> None:
    if not file.exists():
        return
    raw = bytearray(file.read_bytes())
    at %= len(raw) + 1
    match how:
        case "flip":
            raw[at : at + len(data)] = bytes(old ^ new for old, new in zip(raw[at:], data, strict=False))
        case "insert":
            raw[at:at] = data
        case "cut":
            del raw[at : at + len(data)]
        case "pending":
            file.rename(file.with_suffix(".pending"))
            return
        case "drop":
            del raw[at:]
    file.write_bytes(raw)


@pytest.mark.fuzz
@given(st.lists(st.tuples(HEADERS, st.binary(max_size=40), st.booleans()), min_size=1, max_size=3))
def test_a_hostile_journal_writes_nothing_elsewhere(
    entries: list[tuple[dict[str, Any], bytes, bool]],
) -> None:
    """Whatever its headers say of paths, sizes, hashes, modes, times and numbers."""
    with folder() as top:
        (top / "journal").mkdir()
        (top / "work" / "a").write_text("mine\n")
        for number, (header, blob, is_pending) in enumerate(entries, 1):
            header = {**header, "number": header["number"] if blob[:1] == b"\0" else number}
            header["files"] = [_placed(file, top) for file in header["files"]]
            with contextlib.suppress(UnicodeEncodeError, OverflowError):
                line = msgspec.json.encode(header)
                name = f"{number:010d}.{'pending' if is_pending else 'edit'}"
                (top / "journal" / name).write_bytes(line + b"\n" + blob)
        before = apart(top)
        exercise(Journal(top / "journal"), top)
        assert apart(top) == before


def _placed(file: dict[str, Any], top: Path) -> dict[str, Any]:
    """Return the file with paths from the root on, or as they are: relative ones."""
    is_relative = file["is_relative"]
    path = file["path"].removeprefix("work/") if is_relative else f"{top}/{file['path']}"
    protected = "/.git/" in path or path.endswith(".envrc")
    root = str(top / "work") if protected else file["root"] and f"{top}/{file['root']}"
    return {key: value for key, value in file.items() if key != "is_relative"} | {"path": path, "root": root}


STATES = st.sampled_from([None, b"", b"mine\n", b"theirs\n", b"1\n2\n", b"1\ntwo\n"])


@pytest.mark.fuzz
@given(st.lists(st.tuples(PATHS, STATES, STATES, st.booleans()), min_size=1, max_size=3), st.booleans())
def test_a_consistent_hostile_journal_writes_nothing_elsewhere(
    changes: list[tuple[str, bytes | None, bytes | None, bool]], is_pending: bool
) -> None:
    """Its hashes and sizes are right: only its paths are not those of a workspace."""
    with folder() as top:
        (top / "journal").mkdir()
        (top / "work" / "a").write_text("mine\n")
        before = apart(top)
        steps = [
            Step(
                _path(path, top),
                "task",
                old,
                new,
                root=str(top / "work") if is_task or _is_protected(path) else "",
            )
            for path, old, new, is_task in changes
        ]
        entries = EntryFolder(top / "journal")
        with contextlib.suppress(VivaceError), entries.lock():
            entry = entries.write_pending("edit", "x", steps, ())
            if not is_pending:
                entries.finish(entry.number)
        exercise(Journal(top / "journal"), top)
        assert apart(top) == before


def _is_protected(path: str) -> bool:
    return "/.git/" in path or path.endswith(".envrc")


def _path(path: str, top: Path) -> Path:
    return Path(f"{top}/{path}")

"""The files of a face's folder: what is shown, read and written, and every way out of it that is refused."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.web.facing import RefusedRequest, facing
from vivace.client.warm import ServerAddress
from vivace.errors import FileProblem, StaleFile, VivaceError
from vivace.web import files
from vivace.web.operations import everything
from vivace.web.operations.table import answered_kinds


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "app.py").write_text("x = 1\n")
    (folder / ".gitignore").write_text("build/\n")
    (folder / "build").mkdir()
    (folder / "build" / "out.py").write_text("made\n")
    (folder / ".git").mkdir()
    (tmp_path / "secret.txt").write_text("secret\n")
    return folder


def test_the_tree_leaves_out_what_git_ignores(folder: Path) -> None:
    """Folders stand before what is in them; ignored files and Git's own are not there."""
    found = [(entry.path, entry.is_folder) for entry in files.tree(folder).entries]
    assert found == [(".gitignore", False), ("src", True), ("src/app.py", False)]
    assert [entry.path for entry in files.tree(folder, "src").entries] == ["src/app.py"]


def test_files_are_found_by_letters(folder: Path) -> None:
    """The letters may be anywhere in the path, in this order."""
    assert files.find(folder, "sapp", 10) == ["src/app.py"]
    assert files.find(folder, "out", 10) == []


def test_a_text_is_written_only_over_what_was_read(folder: Path) -> None:
    """A digest of another text is refused, and nothing is lost."""
    shown = files.read(folder, "src/app.py")
    assert (shown.path, shown.text, shown.is_writable) == ("src/app.py", "x = 1\n", True)
    digest = files.write(folder, "src/app.py", "x = 2\n", shown.digest)
    assert files.read(folder, "src/app.py").digest == digest
    with pytest.raises(StaleFile):
        files.write(folder, "src/app.py", "x = 3\n", shown.digest)
    assert (folder / "src" / "app.py").read_text() == "x = 2\n"


def test_a_new_file_is_made_but_none_overwritten(folder: Path) -> None:
    """An empty digest says that there is no file yet."""
    digest = files.write(folder, "new/deep.py", "y\n", "")
    assert files.read(folder, "new/deep.py").digest == digest
    with pytest.raises(StaleFile):
        files.write(folder, "new/deep.py", "z\n", "")


def test_line_ends_and_byte_order_mark_stay(folder: Path) -> None:
    """An editor only knows newlines; the file keeps what it had."""
    file = folder / "dos.txt"
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    shown = files.read(folder, "dos.txt")
    assert shown.text == "one\r\ntwo\r\n"
    files.write(folder, "dos.txt", "one\n1.5\ntwo\n", shown.digest)
    assert file.read_bytes() == b"\xef\xbb\xbfone\r\n1.5\r\ntwo\r\n"


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "src/../../secret.txt",
        "/etc/passwd",
        "src/app.py\0.txt",
        "",
        ".",
        "..",
        "link.txt",
        "link-folder/secret.txt",
        "~/.bashrc",
        "/proc/self/environ",
        "\\..\\secret.txt",
        pytest.param("a" * 5000, id="long"),
    ],
)
def test_no_path_leads_out(folder: Path, path: str) -> None:
    """Neither for reading nor for writing; what lies outside stays as it is."""
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "link-folder").symlink_to(folder.parent)
    with pytest.raises(FileProblem):
        files.read(folder, path)
    with pytest.raises(VivaceError):
        files.write(folder, path, "gotcha\n", "wrong")
    assert (folder.parent / "secret.txt").read_text() == "secret\n"


def test_what_is_no_text_file_is_refused(folder: Path) -> None:
    """A pipe nobody writes to does not hang; devices, folders, binaries and huge files are refused."""
    os.mkfifo(folder / "pipe")
    (folder / "null").symlink_to("/dev/null")
    (folder / "binary").write_bytes(b"\0\1\2\xff")
    (folder / "huge.txt").write_bytes(b"x" * 3_000_000)
    for name in ("pipe", "null", "binary", "huge.txt", "src"):
        with pytest.raises(FileProblem):
            files.read(folder, name)
    with pytest.raises(FileProblem):
        files.write(folder, "big.txt", "x" * 3_000_000, "")


def test_version_control_is_not_written(folder: Path) -> None:
    """A hook that a page could write would be run by Git."""
    with pytest.raises(FileProblem):
        files.write(folder, ".git/hooks/pre-commit", "#!/bin/sh\n", "")
    assert not (folder / ".git" / "hooks").exists()


def test_odd_names_are_shown_or_left_out(folder: Path) -> None:
    """Names with markup, line ends and other scripts are names; one that is no Unicode text is not listed."""
    odd = ["<img src=x onerror=alert(1)>.py", "a\nb.py", "‮txt.exe", " spaced .py", "-rf"]
    for name in odd:
        (folder / "src" / name).write_text("1\n")
    Path(os.fsdecode(os.fsencode(folder / "src") + b"/\xff\xfe.py")).write_text("1\n")
    found = {entry.path for entry in files.tree(folder).entries}
    assert {f"src/{name}" for name in odd} <= found
    assert all(path.isascii() or "‮" in path for path in found)
    for name in odd:
        assert files.read(folder, f"src/{name}").text == "1\n"


@given(
    st.lists(st.sampled_from(["..", ".", "src", "app.py", "link", "/", "", "secret.txt", "~"]), max_size=6)
)
def test_every_path_ends_inside_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    """Whatever is put together from dots, names and links, the real place is in the folder."""
    root = tmp_path_factory.getbasetemp() / "border"
    (root / "in" / "src").mkdir(parents=True, exist_ok=True)
    if not (root / "in" / "link").is_symlink():
        (root / "in" / "link").symlink_to(root)
    try:
        place = files.inside(root / "in", "/".join(parts))
    except FileProblem:
        return
    assert str(place).startswith(f"{os.path.realpath(root)}/in/")


def test_every_request_has_an_answer() -> None:
    """The table has each kind of request of the protocol once."""
    from vivace.web.messages.requests import AnyRequest

    assert everything.__all__
    assert answered_kinds() == set(AnyRequest.__args__)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_face_reads_writes_and_hears_of_changes(address: ServerAddress, folder: Path) -> None:
    """What somebody else writes into a watched file is told; what the face wrote itself is not."""
    async with facing(address) as face:
        await face.ask("hello", folder=str(folder))
        shown = await face.ask("files.read", path="src/app.py")
        await face.ask("files.watch", paths=["src/app.py"])
        written = await face.ask("files.write", path="src/app.py", text="x = 2\n", digest=shown["digest"])
        (folder / "src" / "app.py").write_text("x = 3, by another\n")
        changed = await face.event("file.changed")
        assert changed["digest"] not in (written["digest"], shown["digest"])
        with pytest.raises(RefusedRequest) as stale:
            await face.ask("files.write", path="src/app.py", text="x = 4\n", digest=written["digest"])
        assert stale.value.code == "changed"
        with pytest.raises(RefusedRequest) as outside:
            await face.ask("files.read", path="../secret.txt")
        assert outside.value.code == "file_problem"
        with pytest.raises(RefusedRequest):
            await face.ask("folder.open", path="/nowhere/at/all")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_hostile_folder_holds_up_no_other_face(address: ServerAddress, folder: Path) -> None:
    """Rules that a backtracking matcher never decides, and many files, are one face's own matter."""
    (folder / ".gitignore").write_text("\n".join(["*a" * 25 + "*b", "/" + "**/*a*/" * 20 + "b"] * 50))
    for number in range(3000):
        (folder / f"{'a' * 120}{number}").write_text("")
    async with facing(address) as slow, facing(address) as other:
        await slow.ask("hello", folder=str(folder))
        await other.ask("hello")
        asked = asyncio.gather(slow.ask("files.tree"), slow.ask("files.find", words="aaa"))
        waits = []
        while not asked.done():
            began = time.monotonic()
            await other.ask("models.list")
            waits.append(time.monotonic() - began)
        assert len((await asked)[0]["entries"]) > 3000
        assert max(waits) < 5, "seconds, on a machine that may be busy"

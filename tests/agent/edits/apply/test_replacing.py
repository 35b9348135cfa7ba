"""Writing: all or nothing, whatever happens."""

import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.edits.killing import run_killed_at
from vivace.agent.edits.apply.journal import Change, Journal
from vivace.agent.edits.apply.source import SourceFile, check_writable, read_source, write_source
from vivace.errors import WriteProblem

Write = Callable[..., SourceFile]


def left_overs(folder: Path) -> list[str]:
    return [path.name for path in folder.glob(".vivace-*")]


def test_write_replaces_and_keeps_mode(on_disk: Write) -> None:
    """The new bytes are there, with the file's old mode, and no temporary file remains."""
    source = on_disk("old\n")
    source.path.chmod(0o751)
    write_source(source, b"new\n")
    assert source.path.read_bytes() == b"new\n"
    assert source.path.stat().st_mode & 0o7777 == 0o751
    assert left_overs(source.path.parent) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_owner_is_kept(on_disk: Write) -> None:
    """A file of another user stays that user's."""
    source = on_disk("old\n")
    os.chown(source.path, 1234, 2345)
    write_source(source, b"new\n")
    assert (source.path.stat().st_uid, source.path.stat().st_gid) == (1234, 2345)


def test_link_stays_a_link(on_disk: Write, tmp_path: Path) -> None:
    """Through a symbolic link the target is written and the link stays."""
    target = on_disk("old\n", "target.py").path
    (tmp_path / "inner").mkdir()
    link = tmp_path / "inner" / "link.py"
    link.symlink_to("../target.py")
    write_source(read_source(link), b"new\n")
    assert link.is_symlink()
    assert target.read_bytes() == b"new\n"


def test_hard_link_keeps_old_bytes(on_disk: Write, tmp_path: Path) -> None:
    """A second name of the file keeps the old bytes, as the docstring says."""
    source = on_disk("old\n")
    (tmp_path / "other").hardlink_to(source.path)
    write_source(source, b"new\n")
    assert (tmp_path / "other").read_bytes() == b"old\n"


def test_changed_since_is_refused(on_disk: Write) -> None:
    """A file that someone else wrote meanwhile keeps what they wrote."""
    source = on_disk("old\n")
    source.path.write_bytes(b"theirs\n")
    with pytest.raises(WriteProblem, match="changed since"):
        write_source(source, b"new\n")
    assert source.path.read_bytes() == b"theirs\n"
    assert left_overs(source.path.parent) == []


def test_gone_since_is_refused(on_disk: Write) -> None:
    """A file that was deleted meanwhile is not brought back."""
    source = on_disk("old\n")
    source.path.unlink()
    with pytest.raises(WriteProblem, match="gone"):
        write_source(source, b"new\n")
    assert not source.path.exists()


def test_read_only_file_is_refused_before_work(on_disk: Write) -> None:
    """A file without write permission is refused early and late, with what to do."""
    source = on_disk("old\n")
    source.path.chmod(0o444)
    for act in (lambda: check_writable(source), lambda: write_source(source, b"new\n")):
        with pytest.raises(WriteProblem, match="read-only") as error:
            act()
        assert "chmod" in error.value.hint
    assert source.path.read_bytes() == b"old\n"


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB, where this user may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot mount here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_full_disk_leaves_the_file(mounted: Path) -> None:
    """Without space for the new bytes the old file stays, and the temporary file goes."""
    path = mounted / "app.py"
    path.write_bytes(b"x" * 40_000)
    with pytest.raises(WriteProblem, match="No space"):
        write_source(read_source(path), b"y" * 40_000)
    assert path.read_bytes() == b"x" * 40_000
    assert left_overs(mounted) == []


def test_full_disk_leaves_all_files_of_an_edit(mounted: Path, journal: Journal) -> None:
    """If the second file does not fit, the first stays old too, and the proposed texts are kept elsewhere."""
    paths = [mounted / "a.py", mounted / "b.py"]
    for path in paths:
        path.write_bytes(b"x" * 4000)
    changes = [Change(read_source(path), b"y" * 40_000, "unit") for path in paths]
    with pytest.raises(WriteProblem, match="No space") as error:
        journal.apply_all(changes, "change it")
    assert [path.read_bytes() for path in paths] == [b"x" * 4000] * 2
    assert [path.read_bytes() for path in error.value.kept] == [b"y" * 40_000] * 2
    assert list(journal.entries()) == []
    assert left_overs(mounted) == []


def test_read_only_file_system_is_refused(mounted: Path) -> None:
    """On a read-only mount even root is told before any work is done."""
    path = mounted / "app.py"
    path.write_bytes(b"old\n")
    source = read_source(path)
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    with pytest.raises(WriteProblem, match="read-only"):
        check_writable(source)


def test_file_size_limit_leaves_the_file(on_disk: Write) -> None:
    """A limit on file sizes is a write problem like a full disk, not a signal."""
    source = on_disk("old\n")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        with pytest.raises(WriteProblem, match="No space"):
            write_source(source, b"y" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert source.path.read_bytes() == b"old\n"
    assert left_overs(source.path.parent) == []


@pytest.mark.forks
def test_killed_anywhere_leaves_old_or_new(on_disk: Write) -> None:
    """A kill before any line of the writer leaves the old file or the new one, and the next write sweeps."""
    old, new = b"old\n" * 100, b"new\n" * 200
    seen = set()
    for step in range(1000):
        source = on_disk(old)
        done = run_killed_at(step, lambda source=source: write_source(source, new), ("replacing.py",))  # type: ignore[misc]
        content = source.path.read_bytes()
        assert content in (old, new)
        seen.add((content == new, bool(left_overs(source.path.parent))))
        write_source(read_source(source.path), b"next\n")
        assert left_overs(source.path.parent) == []
        if done:
            break
    assert done
    assert seen == {(False, False), (False, True), (True, False)}


def test_sweep_spares_living_writers(on_disk: Write, tmp_path: Path) -> None:
    """The temporary file of a writer that is still at work is not removed by another one."""
    import fcntl

    busy = tmp_path / ".vivace-1-abc.tmp"
    with busy.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_source(on_disk("old\n"), b"new\n")
        assert busy.exists()
    write_source(on_disk("old\n"), b"new\n")
    assert not busy.exists()

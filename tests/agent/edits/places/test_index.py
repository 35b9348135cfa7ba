"""The index of words: kept up to date, kept whole, and made anew where it is not."""

import os
from pathlib import Path

import pytest

from vivace.agent.edits.places import index as index_module
from vivace.agent.edits.places.index import FileIndex
from vivace.agent.edits.places.splitting import parts_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "cart.py").write_text("def add_item(cart): pass\n")
    (folder / "pay.py").write_text("def charge(card): pass\n")
    return folder


def found(index: FileIndex, *words: str) -> list[str]:
    folder = index._folder
    paths = sorted(file.name for file in folder.iterdir())
    stems = {stem: 1.0 for word in words for stem in parts_of(word)}
    scores = index.search(paths, stems).scores
    return sorted(scores, key=lambda path: -scores[path])


def test_files_are_found_by_their_words(folder: Path) -> None:
    """Parts of identifiers are words, and so is the file's own name."""
    index = FileIndex(folder)
    assert found(index, "item") == ["cart.py"]
    assert found(index, "pay") == ["pay.py"]


def test_it_is_kept_and_follows_the_files(folder: Path, tmp_path: Path) -> None:
    """A second search reads only what was changed, made or removed since."""
    file = tmp_path / "cache" / "index.db"
    assert found(FileIndex(folder, file), "charge") == ["pay.py"]
    (folder / "pay.py").write_text("def refund(card): pass\n")
    (folder / "new.py").write_text("def refund_all(): pass\n")
    (folder / "cart.py").unlink()
    index = FileIndex(folder, file)
    assert found(index, "charge") == []
    assert sorted(found(index, "refund")) == ["new.py", "pay.py"]
    assert found(index, "item") == []


def test_what_did_not_change_is_not_read_again(folder: Path, tmp_path: Path) -> None:
    """A file of the same time and size has the words that were read before."""
    file, cart = tmp_path / "index.db", folder / "cart.py"
    before = cart.stat()
    assert found(FileIndex(folder, file), "item") == ["cart.py"]
    cart.write_text("def add_pear(cart): pass\n")
    os.utime(cart, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found(FileIndex(folder, file), "item") == ["cart.py"]


def test_files_that_are_not_searched_are_kept(folder: Path, tmp_path: Path) -> None:
    """Tests are left out of most searches, and not read again for the next one that asks for them."""
    file, cart = tmp_path / "index.db", folder / "cart.py"
    before = cart.stat()
    assert found(FileIndex(folder, file), "item") == ["cart.py"]
    assert FileIndex(folder, file).search(["pay.py"], {"item": 1.0}).scores == {}
    cart.write_text("def add_pear(cart): pass\n")
    os.utime(cart, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found(FileIndex(folder, file), "item") == ["cart.py"]


def test_a_damaged_index_is_made_anew(folder: Path, tmp_path: Path) -> None:
    """The files are the truth."""
    file = tmp_path / "index.db"
    file.write_bytes(b"no database" * 100)
    assert found(FileIndex(folder, file), "item") == ["cart.py"]


def test_segments_are_merged(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small changes leave one segment, in which only what is there counts."""
    monkeypatch.setattr(index_module, "MAX_SEGMENTS", 3)
    file = tmp_path / "index.db"
    for number in range(8):
        (folder / "cart.py").write_text(f"def add_{'x' * number}item(cart): pass\n")
        found(FileIndex(folder, file), "cart")
    index = FileIndex(folder, file)
    assert found(index, "xxxxxxxitem") == ["cart.py"]
    assert found(index, "item") == []
    with index._opened() as database:
        (segments,) = database.execute("SELECT count(DISTINCT segment) FROM postings").fetchone()
    assert segments <= 3


def test_a_link_out_of_the_folder_is_not_read(folder: Path, tmp_path: Path) -> None:
    """Whoever delivered the repository chose where it leads."""
    (tmp_path / "secret.py").write_text("def secret_word(): pass\n")
    (folder / "link.py").symlink_to(tmp_path / "secret.py")
    assert found(FileIndex(folder), "secret_word") == []


def test_what_takes_too_long_is_read_at_the_next_search(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search says that some files are not read yet, and the next one goes on."""
    file = tmp_path / "index.db"
    monkeypatch.setattr(index_module, "READING_S", -1.0)
    assert not FileIndex(folder, file).search(["cart.py"], {"item": 1.0}).is_complete
    monkeypatch.setattr(index_module, "READING_S", 20.0)
    assert FileIndex(folder, file).search(["cart.py"], {"item": 1.0}).is_complete

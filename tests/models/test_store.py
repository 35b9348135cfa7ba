"""Where model files are, and how they go away."""

from pathlib import Path

import pytest

from tests.models.fake_sources import CONTENT, tiny_card
from vivace.config import Settings
from vivace.errors import ModelUnavailable, UsageError
from vivace.models import download, store
from vivace.models.catalog import SMOLLM2
from vivace.models.progress import Silent


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache_dir=tmp_path / "cache", state_dir=tmp_path / "state")


def put(path: Path, size_bytes: int) -> Path:
    """A file of that size that takes no room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size_bytes)
    return path


def test_absent_model_has_a_path_and_is_not_present(settings: Settings) -> None:
    """A known name has its place before its file is there."""
    assert store.model_path(settings, SMOLLM2.name) == settings.models_dir / SMOLLM2.file
    assert not store.is_present(settings, SMOLLM2.name)


def test_file_of_another_size_is_not_present(settings: Settings) -> None:
    """A file that is one byte short does not count as the model."""
    path = put(store.model_path(settings, SMOLLM2.name), SMOLLM2.size_bytes - 1)
    assert not store.is_present(settings, SMOLLM2.name)
    put(path, SMOLLM2.size_bytes)
    assert store.is_present(settings, SMOLLM2.name)


def test_path_to_a_file_is_taken_as_it_is(settings: Settings, tmp_path: Path) -> None:
    """Instead of a name one may give a .gguf file; it is never downloaded."""
    own = put(tmp_path / "own.gguf", 10)
    assert download.ensure(settings, str(own), Silent()) == own


@pytest.mark.parametrize("name", ["missing.gguf", "folder/model", "scripted:edit", "nonsense"])
def test_unknown_model_is_refused(settings: Settings, name: str) -> None:
    """A name that is neither a model nor a file is a usage error."""
    with pytest.raises(UsageError):
        store.model_path(settings, name)


def test_offline_does_not_download(settings: Settings) -> None:
    """With offline set, an absent model is an error that says how to get it."""
    with pytest.raises(ModelUnavailable) as caught:
        download.ensure(settings.having(offline=True), SMOLLM2.name, Silent())
    assert "vivace models pull smollm2-135m" in caught.value.hint


def test_remove_deletes_the_file_and_its_beginning(settings: Settings) -> None:
    """Removing takes away the file and what a stopped pull left, and says how much that was."""
    card = tiny_card()
    put(store.card_path(settings, card), len(CONTENT))
    put(store.part_path(settings, card.files[0]), 5)
    assert store.remove(settings, card) == len(CONTENT) + 5
    assert not store.card_path(settings, card).exists()
    assert not store.part_path(settings, card.files[0]).exists()
    assert store.remove(settings, card) == 0


def test_remove_waits_for_no_download(settings: Settings) -> None:
    """A model that is being downloaded cannot be removed from under the download."""
    card = tiny_card()
    with store.locked(settings, card) as held:
        assert held
        with pytest.raises(ModelUnavailable, match="being downloaded"):
            store.remove(settings, card)


def test_unwritable_folder_is_explained(tmp_path: Path) -> None:
    """A models folder that cannot be made is named, with the setting that moves it."""
    (tmp_path / "file").write_text("")
    settings = Settings(cache_dir=tmp_path / "file", state_dir=tmp_path)
    with pytest.raises(ModelUnavailable) as caught:
        store.remove(settings, tiny_card())
    assert "VIVACE_CACHE_DIR" in caught.value.hint


@pytest.mark.parametrize(
    ("wrong", "right"), [("smollm", "smollm2-135m"), ("Qwen2.5-coder-1.5", "qwen2.5-coder-1.5b")]
)
def test_unknown_name_suggests_the_nearest(settings: Settings, wrong: str, right: str) -> None:
    """A name a little off is refused with the nearest known one."""
    with pytest.raises(UsageError) as caught:
        store.find_card(settings, wrong)
    assert f"Did you mean {right}?" in caught.value.hint


def test_hopeless_name_lists_all(settings: Settings) -> None:
    """A name like nothing we know is refused with the list of all, those of the hub too."""
    with pytest.raises(UsageError) as caught:
        store.find_card(settings, "xyzzy")
    assert caught.value.hint.startswith("Known models: qwen2.5-coder-1.5b, smollm2-135m, gemma3-270m")


@pytest.mark.parametrize(
    ("called", "name"),
    [("qwen2.5-coder:7b", "qwen2.5-coder-7b"), ("gpt-oss:20b", "gpt-oss-20b"), ("xyz:1", "xyz:1")],
)
def test_a_name_may_have_a_colon(settings: Settings, called: str, name: str) -> None:
    """A size after a colon is as good as one after a dash."""
    assert store.full_name(settings, called) == name

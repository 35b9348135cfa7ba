"""Which files a Hugging Face folder is made of; what is wrong with one is said in one line."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vivace.cli.installation.fetching import with_model_here
from vivace.config import Settings
from vivace.errors import StartError, UsageError
from vivace.models.folder import INDEX, end_ids, identity, read_json, template_of_folder, weight_files
from vivace.models.store import is_present, model_path

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(b"")


def write_index(folder: Path, *names: str) -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": {f"w{n}": name for n, name in enumerate(names)}}))


def test_the_index_says_which_files_there_are(tmp_path: Path) -> None:
    """Each once, in order; without an index all that there are. Where there is one file, that is all."""
    touch(tmp_path, "b.safetensors", "a.safetensors", "._a.safetensors")
    assert [file.name for file in weight_files(tmp_path)] == ["a.safetensors", "b.safetensors"]
    touch(tmp_path, "c.safetensors")
    write_index(tmp_path, "b.safetensors", "a.safetensors", "b.safetensors")
    assert [file.name for file in weight_files(tmp_path)] == ["a.safetensors", "b.safetensors"]
    touch(tmp_path, "model.safetensors")
    assert [file.name for file in weight_files(tmp_path)] == ["model.safetensors"]


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    """Whether the index names it, or the names of the others tell that it should be there."""
    touch(tmp_path, "m-00001-of-00003.safetensors")
    with pytest.raises(StartError, match=r"lacks m-00002-of-00003\.safetensors and 1 more"):
        weight_files(tmp_path)
    write_index(tmp_path, "m-00001-of-00003.safetensors", "gone.safetensors")
    with pytest.raises(StartError, match=r"lacks gone\.safetensors,") as raised:
        weight_files(tmp_path)
    assert raised.value.hint


@pytest.mark.parametrize(
    "name",
    ["../x.safetensors", "/etc/x.safetensors", "..", "", "a/b.safetensors", "a\\b.safetensors", "x.bin",
     "x\0.safetensors", "./x.safetensors", "x.safetensors/"],
)  # fmt: skip
def test_an_index_that_leads_elsewhere(tmp_path: Path, name: str) -> None:
    """Nothing outside of the folder is opened because a file in it says so."""
    folder = tmp_path / "model"
    (folder / "a").mkdir(parents=True)
    touch(tmp_path, "x.safetensors")
    touch(folder, "x.safetensors", "x.bin")
    touch(folder / "a", "b.safetensors")
    write_index(folder, name)
    with pytest.raises(StartError, match="no safetensors file beside it"):
        weight_files(folder)


def test_links_are_followed(tmp_path: Path) -> None:
    """As in Hugging Face's own cache, whose folders are made of them."""
    touch(tmp_path, "blob")
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / "model.safetensors").symlink_to("../blob")
    assert weight_files(folder) == [folder / "model.safetensors"]


@pytest.mark.parametrize(
    ("file", "words"),
    [("pytorch_model.bin", "in .bin files"), ("tiny.gguf", "but tiny.gguf"), ("a.txt", "no *.safetensors")],
)
def test_a_folder_without_weights_says_what_it_has(tmp_path: Path, file: str, words: str) -> None:
    touch(tmp_path, file)
    with pytest.raises(StartError) as raised:
        weight_files(tmp_path)
    assert words in raised.value.message
    assert raised.value.hint


def test_what_is_no_file(tmp_path: Path) -> None:
    """A pipe is not waited for, nothing is read without an end, and what is missing is named."""
    with pytest.raises(StartError, match=r"has no config\.json"):
        template_of_folder(tmp_path)
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(StartError, match=r"has no config\.json"):
        template_of_folder(tmp_path)
    (tmp_path / "config.json").unlink()
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(1 << 22)
    with pytest.raises(StartError, match="has more than 1 MiB"):
        template_of_folder(tmp_path)


@given(data=st.binary(max_size=40) | json_values.map(lambda value: json.dumps(value).encode()))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_read_or_refused(tmp_path: Path, data: bytes) -> None:
    """In one line, whatever is in the files."""
    names = ("config.json", "tokenizer_config.json", "generation_config.json", INDEX)
    for name in names:
        (tmp_path / name).write_bytes(data)
    for read in (
        template_of_folder,
        end_ids,
        weight_files,
        lambda path: read_json(path, INDEX, dict[str, Any]),
    ):
        message = ""
        try:
            read(tmp_path)
        except StartError as error:
            message = error.message
        assert "\n" not in message


def test_numbers_and_depths_without_measure(tmp_path: Path) -> None:
    """Ends that are no tokens, a number of ten thousand digits, brackets inside of brackets."""
    for text in ('{"eos_token_id": true}', '{"eos_token_id": ' + "9" * 10_000 + "}", "[" * 100_000):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(StartError, match="is not as it should be"):
            end_ids(tmp_path)


def test_the_identity_changes_with_every_part(tmp_path: Path) -> None:
    """With any file's size or time, with its name, and with config.json; else it stays."""
    touch(tmp_path, "a.safetensors", "b.safetensors")
    (tmp_path / "config.json").write_text("{}")
    seen = {identity(tmp_path)}
    assert identity(tmp_path) in seen
    facts = (tmp_path / "b.safetensors").stat()
    os.utime(tmp_path / "b.safetensors", ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    seen.add(identity(tmp_path))
    (tmp_path / "a.safetensors").write_bytes(b"x")
    os.utime(tmp_path / "a.safetensors", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    seen.add(identity(tmp_path))
    (tmp_path / "b.safetensors").rename(tmp_path / "c.safetensors")
    seen.add(identity(tmp_path))
    (tmp_path / "config.json").write_text('{"rope_theta": 1}')
    seen.add(identity(tmp_path))
    assert len(seen) == 5


def test_a_folder_is_a_model(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by its path, with config.json in it; what cannot be one is refused in one line."""
    folder = tmp_path / "Qwen2.5-Coder-1.5B"
    folder.mkdir()
    with pytest.raises(UsageError, match=r"has no config\.json"):
        model_path(settings, str(folder))
    (folder / "config.json").write_text("{}")
    assert model_path(settings, str(folder)) == folder
    assert is_present(settings, f"{folder}/")
    monkeypatch.chdir(folder)
    assert model_path(settings, "./").name == folder.name
    assert with_model_here(settings.having(model="./")).model == str(folder.resolve())
    for name in ("/" + "x" * 5000, "~nobody-of-that-name/x", "/no\0thing"):
        with pytest.raises(UsageError, match="There is no model"):
            model_path(settings, name)

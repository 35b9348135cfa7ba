"""A server whose model is a folder of safetensors, where that cannot run: each problem is one line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.serving import fetch

pytest.importorskip("tokenizers", reason="tokenizers is not installed: vivace extras add cuda")

from tests.folders import write_config, write_vocabulary
from vivace.client import warm
from vivace.config import Settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "Qwen2.5-Coder-1.5B"
    path.mkdir()
    write_config(path)
    write_vocabulary(path)
    return path


def test_a_folder_needs_the_gpu_engine(start: Callable[..., Settings], folder: Path) -> None:
    """It is listed by its path; a request is told what it needs and what runs instead."""
    settings = start(model=str(folder), device="cpu")
    address = warm.ensure_server(settings)
    _, listed = fetch(address, "GET", "/v1/models")
    assert listed["data"][0]["id"] == str(folder)
    status, answer = fetch(address, "POST", "/v1/responses", {"input": "hi"})
    error = answer["error"]
    assert (status, error["code"]) == (503, "could_not_start")
    assert f"{folder.name} is a folder of safetensors, which needs the GPU engine." in error["message"]
    assert "A .gguf file of the same model runs on the CPU." in error["message"]
    assert "Traceback" not in error["message"]
    assert fetch(address, "GET", "/v1/models")[0] == 200


@pytest.mark.parametrize(
    ("file", "words", "code"),
    [("tokenizer.json", "has no tokenizer.json", 503), ("config.json", "has no config.json", 404)],
)
def test_a_folder_that_lacks_something(
    start: Callable[..., Settings], folder: Path, file: str, words: str, code: int
) -> None:
    """What is missing is named."""
    (folder / file).unlink()
    address = warm.ensure_server(start(model=str(folder), device="cpu"))
    status, answer = fetch(address, "POST", "/v1/responses", {"input": "hi"})
    assert status == code
    assert words in answer["error"]["message"]

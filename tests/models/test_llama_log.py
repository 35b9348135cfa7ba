"""What of llama.cpp's own log reaches ours."""

from pathlib import Path

import pytest

from vivace.errors import StartError
from vivace.models.gguf_vocab import load_model, state_of


def test_an_error_of_llama_cpp_is_printed_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Why a file cannot be loaded is in the log, once, and nothing else of what llama.cpp tells."""
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF" + b"\xff" * 100)
    for _ in range(2):
        with pytest.raises(StartError):
            load_model(file)
    lines = capfd.readouterr().err.splitlines()
    assert lines
    assert all(line.startswith("llama.cpp: ") for line in lines)
    assert len(lines) == len(set(lines))


def test_an_architecture_is_asked_for_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    """Whether llama.cpp knows one is found by a load that may fail: that is an answer, and no error."""
    assert state_of("nonsense") is None
    assert state_of("qwen35") is True
    assert state_of("gpt-oss") is False
    assert not capfd.readouterr().err

"""A folder of safetensors on a machine that cannot run it: one line says so, and nothing takes over."""

from pathlib import Path

import pytest

from tests.engine.runners.test_gpu_check import BAD, GOOD
from vivace.engine.devices.machine import Machine
from vivace.engine.loop.opening import open_runner
from vivace.engine.wire.job import Job
from vivace.errors import StartError

ON_THE_CPU = "A .gguf file of the same model runs on the CPU."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "Qwen2.5-Coder-1.5B"
    path.mkdir()
    (path / "config.json").write_text('{"model_type": "gpt2"}')
    return path


@pytest.mark.parametrize("device", ["auto", "cuda"])
@pytest.mark.parametrize("case", BAD)
def test_a_machine_that_cannot(folder: Path, case: str, device: str) -> None:
    """What the folder needs, what is wrong here, and what runs instead; never to set the device."""
    found, why, remedy = BAD[case]
    with pytest.raises(StartError) as raised:
        open_runner(
            Job("m", str(folder), context_tokens=256, device=device), lambda: Machine(nvidia=(found,))
        )
    error = raised.value
    assert error.message == f"{folder.name} is a folder of safetensors, which needs the GPU engine. {why}"
    assert error.hint.startswith(ON_THE_CPU)
    assert "config.toml" not in error.hint
    assert (remedy in error.hint) == (found.capability >= (9, 0))


def test_a_wish_for_the_cpu(folder: Path) -> None:
    """Nobody looks for a GPU; the wish is named."""

    def never() -> Machine:
        raise AssertionError("nobody should look")

    with pytest.raises(StartError, match=r'The device is "cpu" in config\.toml') as raised:
        open_runner(Job("m", str(folder), context_tokens=256, device="cpu"), never)
    assert raised.value.hint == ON_THE_CPU


def test_a_folder_that_cannot_run_on_a_good_machine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong with it is said, and the CPU does not try."""
    pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
    job = Job("m", str(folder), context_tokens=256)
    with pytest.raises(StartError, match="is a gpt2 model; the GPU engine knows") as raised:
        open_runner(job, lambda: Machine(nvidia=(GOOD,)))
    assert raised.value.hint == ON_THE_CPU
    (folder / "config.json").write_text("{")
    with pytest.raises(StartError, match=r"config\.json is not as it should be"):
        open_runner(job, lambda: Machine(nvidia=(GOOD,)))
    assert capsys.readouterr().err == ""

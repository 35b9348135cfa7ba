"""An adapter's file comes back as it was; one that is damaged, or another model's, is refused in one line."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tests.training.bed import SHAPE, tiny_weights  # noqa: E402
from tests.training.test_decoder import moved_adapter  # noqa: E402
from vivace.errors import FileProblem  # noqa: E402
from vivace.training.adapter import as_stored, load_adapter, save_adapter  # noqa: E402


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "adapter.safetensors"
    save_adapter(moved_adapter(), path)
    return path


def test_it_comes_back_as_it_was(file: Path) -> None:
    """All matrices up to 16 bits, rank and scale exactly."""
    found, written = load_adapter(file, SHAPE, tiny_weights()), moved_adapter()
    assert (found.rank, found.alpha) == (written.rank, written.alpha)
    for name, pair in written.pairs.items():
        for mine, theirs in zip(pair, found.pairs[name], strict=True):
            torch.testing.assert_close(theirs, mine, atol=1e-3, rtol=1e-3)


def test_in_eight_bits_it_is_half_as_large_and_nearly_the_same(tmp_path: Path) -> None:
    """What comes back is what `as_stored` says, and each number is off by half a step of its rank at most."""
    adapter, path = moved_adapter(), tmp_path / "small.safetensors"
    save_adapter(adapter, path, bits=8)
    found, told = load_adapter(path, SHAPE, tiny_weights()), as_stored(adapter)
    for name, pair in adapter.pairs.items():
        for along, (mine, theirs, said) in enumerate(
            zip(pair, found.pairs[name], told.pairs[name], strict=True)
        ):
            assert torch.equal(theirs, said)
            step = mine.detach().abs().amax(1 - along, keepdim=True) / 127
            assert bool(((theirs - mine).detach().abs() <= 0.501 * step).all())


def test_scales_that_are_missing_are_refused(tmp_path: Path) -> None:
    """Whole numbers alone say nothing."""
    path = tmp_path / "adapter.safetensors"
    save_adapter(moved_adapter(), path, bits=8)
    path.write_bytes(path.read_bytes().replace(b"lora_A.scales", b"lora_A.scalez", 1))
    assert "made for another model" in refused(path)


def test_others_can_read_it(file: Path) -> None:
    """The safetensors package reads the file, with PEFT's names."""
    safetensors = pytest.importorskip("safetensors.torch")
    assert "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight" in safetensors.load_file(file)


def refused(path: Path, shape: object = SHAPE) -> str:
    with pytest.raises(FileProblem) as error:
        load_adapter(path, shape, tiny_weights())  # type: ignore[arg-type]
    assert "\n" not in error.value.message
    assert error.value.hint
    return error.value.message


@pytest.mark.parametrize("length", [0, 4, 9, 200, -1, -100])
def test_a_file_that_is_cut_off_is_refused(file: Path, length: int) -> None:
    """Wherever it ends."""
    file.write_bytes(file.read_bytes()[:length])
    assert "adapter.safetensors is no adapter that can be read" in refused(file)


def test_bytes_behind_the_end_are_refused(file: Path) -> None:
    """They belong to nothing, so the file is not what was written."""
    file.write_bytes(file.read_bytes() + b"more")
    assert "4 bytes belong to nothing" in refused(file)


def test_a_length_that_lies_is_refused(file: Path) -> None:
    """A header that is said to be huge is not read."""
    file.write_bytes(struct.pack("<Q", 1 << 60) + file.read_bytes()[8:])
    refused(file)


def test_weights_that_are_not_finite_are_refused(file: Path) -> None:
    """NaN in an adapter would make every answer empty."""
    raw = bytearray(file.read_bytes())
    raw[-2:] = b"\xff\x7f"
    file.write_bytes(raw)
    assert "no numbers" in refused(file)


def test_an_adapter_of_another_model_is_refused(file: Path) -> None:
    """Fewer layers, or projections of another size, are another model."""
    assert "another model" in refused(file, replace(SHAPE, layers=1))
    raw = file.read_bytes()
    (size,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + size])
    header["__metadata__"]["rank"] = "8"
    head = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(head)) + head + raw[8 + size :])
    assert "another model" in refused(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """As what it is: not there."""
    assert "nothing.safetensors" in refused(tmp_path / "nothing.safetensors")

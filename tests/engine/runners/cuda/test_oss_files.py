"""gpt-oss out of a folder and out of a GGUF: the shape that each tells, and its weights."""

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
pytest.importorskip("gguf", reason="gguf is not installed: vivace extras add cuda")
pytest.importorskip("safetensors", reason="safetensors is not installed")

from tests.engine.runners.cuda.oss_bed import SMALL, write_folder, write_gguf  # noqa: E402
from vivace.engine.runners.cuda.load import GpuOptions, check_options, weight_bytes  # noqa: E402
from vivace.engine.runners.cuda.model.oss import widen_mxfp4  # noqa: E402
from vivace.engine.runners.cuda.model.reference import StateDict  # noqa: E402
from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES  # noqa: E402
from vivace.engine.runners.cuda.weights.build import build_model, reading_order  # noqa: E402
from vivace.engine.runners.cuda.weights.checkpoint import describe, open_checkpoint, read_checkpoint  # noqa: E402
from vivace.engine.runners.cuda.weights.oss import Mxfp4, oss_experts, random_oss_weights  # noqa: E402
from vivace.engine.runners.cuda.weights.pieces import Checkpoint, read_piece  # noqa: E402
from vivace.engine.runners.cuda.weights.safetensors_folder import describe_folder  # noqa: E402
from vivace.engine.runners.cuda.weights.stream import WeightStream  # noqa: E402
from vivace.errors import StartError  # noqa: E402


def assert_same(path: Path, weights: StateDict) -> None:
    """The same numbers, read to the host and as a stream; a file may have other scales for them."""
    checkpoint = open_checkpoint(path)
    order = [name for name in reading_order(SMALL) if name in checkpoint.pieces]
    assert sorted(order) == sorted(checkpoint.pieces)
    found = read_checkpoint(path)[1]
    for name, rows in weights.items():
        if ".experts." not in name:
            assert torch.equal(found[name].float(), rows.float()), name
    with WeightStream(checkpoint, order, "cpu", batch_bytes=1 << 16) as stream:
        model, _ = build_model(SMALL, stream, 8, "cpu", 64)
    wanted, _ = build_model(SMALL, weights, 8, "cpu", 64)
    for mine, other in zip(model.layers, wanted.layers, strict=True):
        assert mine.oss
        assert other.oss
        assert all(torch.equal(a, b) for a, b in zip(mine.oss[1:], other.oss[1:], strict=True))
        assert torch.equal(mine.qkv.tiles, other.qkv.tiles)
    for index in range(SMALL.layers):
        both = zip(
            oss_experts(SMALL, found, index) if path.is_dir() else gguf_experts(checkpoint, index),
            oss_experts(SMALL, weights, index),
            strict=True,
        )
        for own, told in both:
            assert torch.equal(widen_mxfp4(own.blocks, own.scales), widen_mxfp4(told.blocks, told.scales))
            assert torch.equal(own.bias.float(), told.bias.float())


def gguf_experts(checkpoint: Checkpoint, index: int) -> tuple[Mxfp4, Mxfp4]:
    pieces = {
        name: each for name, each in checkpoint.pieces.items() if name.startswith(f"layers.{index}.mlp")
    }
    return oss_experts(SMALL, StateDict({name: read_piece(each) for name, each in pieces.items()}), index)


def test_a_folder(tmp_path: Path, seed: int) -> None:
    """Shape and weights come back as they were written."""
    weights = random_oss_weights(SMALL, seed)
    assert describe(write_folder(tmp_path, SMALL, weights)) == SMALL
    assert_same(tmp_path, weights)


def test_a_gguf(tmp_path: Path, seed: int) -> None:
    """Gate and up, which lie apart there, take turns again; halves of a block are neighbours again."""
    weights = random_oss_weights(SMALL, seed)
    shape = describe(write_gguf(tmp_path / "tiny.gguf", SMALL, weights))
    assert SMALL.oss
    wanted = replace(SMALL, oss=replace(SMALL.oss, limit=7.0))  # the file does not say it
    assert replace(shape, norm_epsilon=SMALL.norm_epsilon) == wanted  # it is in 32 bits there
    assert_same(tmp_path / "tiny.gguf", weights)


def test_a_folder_that_was_widened(tmp_path: Path, seed: int) -> None:
    """Experts in bf16 are refused with the reason."""
    write_folder(tmp_path, SMALL, random_oss_weights(SMALL, seed), quantization_config=None)
    with pytest.raises(StartError, match="its experts are not in MXFP4"):
        describe_folder(tmp_path)


def test_a_tensor_that_is_missing(tmp_path: Path, seed: int) -> None:
    """A folder without its sinks is refused by name."""
    weights = random_oss_weights(SMALL, seed)
    del weights["layers.1.self_attn.sinks"]
    with pytest.raises(StartError, match=r"layers\.1\.self_attn\.sinks is not there"):
        describe_folder(write_folder(tmp_path, SMALL, weights))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (GpuOptions(4096, weight_bits=16), "experts in MXFP4, which go with 8 or 4 bits"),
        (GpuOptions(4096, kv_bits=8), "heads of 64, whose KV is in 16 bits"),
    ],
)
def test_formats_that_have_no_kernels(options: GpuOptions, reason: str) -> None:
    """Weights in bf16 and KV in 8 bits are refused with what to set instead."""
    with pytest.raises(StartError, match=reason):
        check_options(Path("gpt-oss"), SMALL, options)


def test_memory_of_gpt_oss_20b() -> None:
    """Packed, with the attention's copies, whose heads have no zeros, a chunk's rows, and the embedding."""
    assert 14.2e9 < weight_bytes(KNOWN_SHAPES["gpt-oss-20b"], 8, "bf16") < 15.2e9

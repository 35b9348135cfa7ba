"""Weights on their way from files to the device: to the bit what they were, in order, stopped, cut off."""

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
gguf = pytest.importorskip("gguf", reason="gguf is not installed: vivace extras add cuda")
pytest.importorskip("safetensors", reason="safetensors is not installed: vivace extras add cuda")

from tests.engine.runners.cuda.test_checkpoint import gguf_name  # noqa: E402
from tests.engine.runners.cuda.test_families import SHAPES, config_of, stack_experts, write_folder  # noqa: E402
from vivace.engine.runners.cuda.load import _delete_old_copies  # noqa: E402
from vivace.engine.runners.cuda.model.reference import StateDict  # noqa: E402
from vivace.engine.runners.cuda.model.shape import Shape  # noqa: E402
from vivace.engine.runners.cuda.weights.blocks import KINDS, kind_of, unpack_rows  # noqa: E402
from vivace.engine.runners.cuda.weights.build import build_model, random_weights, reading_order  # noqa: E402
from vivace.engine.runners.cuda.weights.checkpoint import open_checkpoint  # noqa: E402
from vivace.engine.runners.cuda.weights.experts import pack_experts  # noqa: E402
from vivace.engine.runners.cuda.weights.layout import gate_up_pairs, pack  # noqa: E402
from vivace.engine.runners.cuda.weights.stream import AHEAD, WeightStream  # noqa: E402
from vivace.errors import StartError  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALVES = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q8_0": (0,), "Q4_0": (0,)}  # bytes that are fp16
DENSE = Shape(2, 512, 1024, 4, 2, 320, 640, tied_head=False)
MIXED = replace(SHAPES["qwen3_moe"], layers=1, experts=24, expert_ffn=256, ffn=256 * 8, experts_per_token=8)
SMALL = {"chunk_bytes": 50_001, "batch_bytes": 700_000, "readers": 3}  # no weight ends where a chunk does


def random_blocks(rows: int, columns: int, kind: str, source: Any) -> Any:
    """Bytes of that kind whose numbers are finite."""
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    raw = source.integers(0, 256, (rows * columns // block, size), dtype=np.uint8)
    for at in HALVES[kind]:
        scales = source.uniform(-0.02, 0.02, len(raw)).astype(np.float16)
        raw[:, at : at + 2] = scales[:, None].view(np.uint8)
    return raw.reshape(rows, -1)


def write_blocks(path: Path, shape: Shape, kinds: tuple[str, str], seed: int) -> StateDict:
    """Write a GGUF of random blocks, of both kinds in turn; return what the gguf package reads in it."""
    source, found = np.random.default_rng(seed), StateDict()
    architecture = "qwen3moe" if shape.experts else "qwen2"
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_block_count(shape.layers)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(128)
    writer.add_context_length(shape.trained_tokens)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    writer.add_expert_count(shape.experts)
    writer.add_expert_used_count(shape.experts_per_token)
    writer.add_expert_feed_forward_length(shape.expert_ffn)
    for number, (name, like) in enumerate(stack_experts(random_weights(shape, seed)).items()):
        kind = gguf.GGMLQuantizationType[kinds[number % 2] if like.ndim > 1 else "F32"]
        if kind.name in HALVES:
            raw = random_blocks(like.numel() // like.shape[-1], like.shape[-1], kind.name, source)
        else:
            raw = gguf.quantize(like.float().reshape(-1, like.shape[-1]).numpy(), kind)
        writer.add_tensor(gguf_name(name), raw.reshape(*like.shape[:-1], -1), raw_dtype=kind)
        numbers = torch.from_numpy(np.array(gguf.dequantize(raw, kind))).reshape(like.shape)
        found[name] = numbers.to(torch.bfloat16 if like.ndim > 1 else torch.float32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return cut_experts(found)


def cut_experts(stacked: StateDict) -> StateDict:
    found = StateDict()
    for name, rows in stacked.items():
        if ".experts." not in name:
            found[name] = rows
            continue
        before, after = name.split(".experts.")
        found.update({f"{before}.experts.{index}.{after}": each for index, each in enumerate(rows)})
    return found


def tensors_of(model: Any) -> list[Any]:
    """All tensors of a model or a list of layers, in order."""
    if isinstance(model, torch.Tensor):
        return [model]
    return [each for part in model for each in tensors_of(part)] if isinstance(model, list | tuple) else []


def stream(path: Path, **sizes: Any) -> WeightStream:
    checkpoint = open_checkpoint(path)
    return WeightStream(checkpoint, list(reading_order(checkpoint.shape)), DEVICE, **sizes)


def assert_the_same(path: Path, shape: Shape, plain: StateDict, bits: int, **sizes: Any) -> None:
    wanted = build_model(shape, plain, bits, DEVICE, 64)
    with stream(path, **sizes) as weights:
        found = build_model(shape, weights, bits, DEVICE, 64)
    theirs, ours = (tensors_of((*model.layers, *model[2:], dense)) for model, dense in (wanted, found))
    assert len(theirs) == len(ours) > 20 * shape.layers
    for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
        assert one.dtype == other.dtype, number
        assert torch.equal(one, other), number


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of scales that are not finite
@pytest.mark.parametrize("number", [*KINDS, 16, 19, 21])
def test_blocks_are_unpacked_to_the_bit(number: int, seed: int) -> None:
    """Random bytes of each kind become what the gguf package makes of them; infinite where it is."""
    kind, their = kind_of(number), gguf.GGMLQuantizationType(number)
    assert (kind.name, kind.block, kind.block_bytes) == (their.name, *gguf.GGML_QUANT_SIZES[their])
    raw = np.random.default_rng(seed).integers(0, 256, (9, kind.bytes_of(512)), dtype=np.uint8)
    wanted = torch.from_numpy(np.array(gguf.dequantize(raw, their)))
    found = unpack_rows(torch.from_numpy(raw).reshape(-1).to(DEVICE), kind, 512, torch.float32).cpu()
    assert torch.equal(found.isnan(), wanted.isnan())
    real = ~wanted.isnan()
    assert torch.equal(found.view(torch.int32)[real], wanted.view(torch.int32)[real])


@pytest.mark.parametrize("shape", [DENSE, MIXED], ids=["dense", "experts"])
@pytest.mark.parametrize(
    ("kinds", "bits"),
    [
        (("Q4_K", "Q6_K"), 4),
        (("Q4_K", "Q6_K"), 8),
        (("Q8_0", "Q8_0"), 8),
        (("F16", "F16"), 16),
        (("BF16", "Q5_K"), 8),
        (("MXFP4", "Q8_0"), 16),
    ],
)
def test_a_gguf_is_packed_to_the_bit(
    shape: Shape, kinds: tuple[str, str], bits: int, tmp_path: Path, seed: int
) -> None:
    """Blocks unpacked on the way give the packed model that the gguf package's numbers give."""
    plain = write_blocks(tmp_path / "tiny.gguf", shape, kinds, seed)
    assert_the_same(tmp_path / "tiny.gguf", shape, plain, bits, **SMALL)


@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("family", ["qwen2", "qwen3", "qwen3_moe"])
def test_a_folder_is_packed_to_the_bit(family: str, bits: int, tmp_path: Path, seed: int) -> None:
    """Safetensors read in chunks give the packed model of the same tensors in memory."""
    shape = SHAPES[family]
    plain = random_weights(shape, seed)
    write_folder(tmp_path, family, plain, **config_of(family, shape))
    assert_the_same(tmp_path, shape, plain, bits, **SMALL)


def test_every_weight_in_a_batch_of_its_own(tmp_path: Path, seed: int) -> None:
    """The model asks for weights in the order in which they are read, one by one."""
    for shape in (DENSE, MIXED):
        plain = write_blocks(tmp_path / "tiny.gguf", shape, ("Q8_0", "Q8_0"), seed)
        assert_the_same(tmp_path / "tiny.gguf", shape, plain, 8, batch_bytes=1)


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_experts_packed_together_are_those_packed_alone(bits: int, seed: int) -> None:
    """Each expert's tiles and scales are the same as when it is packed by itself."""
    weights = random_weights(MIXED, seed)
    found = pack_experts(MIXED, weights, 0, bits, DEVICE)
    parts = [each.reshape(MIXED.experts, -1) for each in (*found.gate_up, *found.down)]
    for expert in range(MIXED.experts):
        at = f"layers.0.mlp.experts.{expert}."
        gate, up, down = (weights[f"{at}{name}_proj.weight"].to(DEVICE) for name in ("gate", "up", "down"))
        alone = (*pack(torch.cat([gate, up]), bits, gate_up_pairs(MIXED.expert_ffn)), *pack(down, bits))
        assert all(torch.equal(part[expert], each) for part, each in zip(parts, alone, strict=True))


def test_progress_is_told_up_to_the_end(tmp_path: Path, seed: int) -> None:
    """Bytes grow from those of the first batch to all of them."""
    write_blocks(tmp_path / "tiny.gguf", DENSE, ("Q8_0", "Q8_0"), seed)
    checkpoint, told = open_checkpoint(tmp_path / "tiny.gguf"), list[tuple[int, int]]()
    order = list(reading_order(DENSE))
    with WeightStream(checkpoint, order, DEVICE, lambda *now: told.append(now), **SMALL) as weights:
        build_model(DENSE, weights, 8, DEVICE, 64)
    total = sum(piece.size for piece in checkpoint.pieces.values())
    assert [of for _, of in told] == [total] * len(told)
    done = [now for now, _ in told]
    assert done == sorted(done)
    assert 0 < done[0] < 1_000_000
    assert done[-1] == total


def test_stopped_in_the_middle(tmp_path: Path, seed: int) -> None:
    """Closed after its first weight: no thread and no open file stays, and only a little was read ahead."""
    file = tmp_path / "tiny.gguf"
    write_blocks(file, DENSE, ("Q8_0", "Q8_0"), seed)
    before, sizes = _bytes_read(), {**SMALL, "batch_bytes": 300_000}
    with stream(file, **sizes) as weights:
        weights.rows("layers.0.self_attn.q_proj.weight")
    header = file.stat().st_size - sum(piece.size for piece in open_checkpoint(file).pieces.values())
    largest = max(piece.size for piece in open_checkpoint(file).pieces.values())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("weights")]
    assert file.resolve() not in [opened.resolve() for opened in Path("/proc/self/fd").iterdir()]
    assert _bytes_read() - before < (AHEAD + 1) * (300_000 + largest) + header + 100_000


def _bytes_read() -> int:
    text = Path("/proc/self/io").read_text()
    return int(text.split("rchar: ")[1].split()[0])


def test_a_file_that_is_too_short_is_named(tmp_path: Path, seed: int) -> None:
    """Nothing is read of a model one of whose files ends early."""
    file = tmp_path / "tiny.gguf"
    write_blocks(file, DENSE, ("Q8_0", "Q8_0"), seed)
    os.truncate(file, file.stat().st_size - 100_000)
    with pytest.raises(StartError, match=r"tiny\.gguf ends before its weights do"):
        stream(file)


def test_a_file_that_is_cut_while_it_is_read_is_named(tmp_path: Path, seed: int) -> None:
    """A file that becomes shorter under our hands ends the load, not the process."""
    file = tmp_path / "tiny.gguf"
    write_blocks(file, DENSE, ("Q8_0", "Q8_0"), seed)
    with stream(file, **SMALL) as weights:
        os.truncate(file, 200_000)
        with pytest.raises(StartError, match=r"tiny\.gguf ends before its weights do"):
            build_model(DENSE, weights, 8, DEVICE, 64)


def test_a_file_that_is_gone_is_named(tmp_path: Path, seed: int) -> None:
    """A file that cannot be opened is said with its name and the system's reason."""
    write_blocks(tmp_path / "tiny.gguf", DENSE, ("Q8_0", "Q8_0"), seed)
    checkpoint = open_checkpoint(tmp_path / "tiny.gguf")
    (tmp_path / "tiny.gguf").unlink()
    with pytest.raises(StartError, match=r"tiny\.gguf cannot be read: No such file"):
        WeightStream(checkpoint, list(reading_order(DENSE)), DEVICE)


def test_copies_of_earlier_versions_are_deleted(tmp_path: Path) -> None:
    """Weights that were kept in bf16 go; whatever else is there stays."""
    for name in ("tiny-1f-2e-v3.safetensors", "model.safetensors", "tiny-1f-2e-v3.gguf"):
        (tmp_path / name).write_bytes(b"x")
    _delete_old_copies(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.safetensors", "tiny-1f-2e-v3.gguf"]

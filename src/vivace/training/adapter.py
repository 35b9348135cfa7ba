"""A LoRA adapter: small matrices beside every projection of every layer, and the file that they lie in.

Owns their beginning (the adapter changes nothing yet), merging, and the file: safetensors with PEFT's names,
in 16 or 8 bits. A file that is damaged, or made for another model, is refused. Does not train.
"""

import json
import math
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import Shape
from vivace.errors import FileProblem

PROJECTIONS = (
    *(f"self_attn.{name}_proj" for name in "qkvo"),
    *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
)
_LARGEST = 127  # of 8 bits
_DTYPES = {
    "I8": (torch.int8, 1),
    "F16": (torch.float16, 2),
    "F32": (torch.float32, 4),
    "BF16": (torch.bfloat16, 2),
}
_NAMES = {dtype: name for name, (dtype, _) in _DTYPES.items()}
_MAX_HEADER = 1 << 24


@dataclass(frozen=True)
class Adapter:
    """`pairs[name]` = (A [rank, in], B [out, rank]) of the projection `layers.N.name`."""

    rank: int
    alpha: float
    pairs: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(repr=False)

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    @property
    def parameters(self) -> list[torch.Tensor]:
        return [matrix for pair in self.pairs.values() for matrix in pair]

    def rounded(self, dtype: torch.dtype) -> "Adapter":
        """Return a copy that is not trained, in the model's own dtype."""
        pairs = {name: (a.detach().to(dtype), b.detach().to(dtype)) for name, (a, b) in self.pairs.items()}
        return Adapter(self.rank, self.alpha, pairs)


def projections(shape: Shape) -> list[str]:
    return [f"layers.{layer}.{name}" for layer in range(shape.layers) for name in PROJECTIONS]


def new_adapter(
    shape: Shape, weights: StateDict, rank: int, alpha: float, seed: int, device: torch.device | str
) -> Adapter:
    """Return an adapter in fp32 that changes nothing yet: B is zero. The same seed, the same adapter."""
    chance = torch.Generator().manual_seed(seed)
    pairs = {}
    for name in projections(shape):
        rows, columns = weights[f"{name}.weight"].shape
        a = (torch.rand(rank, columns, generator=chance) * 2 - 1) / math.sqrt(columns)
        b = torch.zeros(rows, rank)
        pairs[name] = (a.to(device).requires_grad_(), b.to(device).requires_grad_())
    return Adapter(rank, alpha, pairs)


def merge(weights: StateDict, adapter: Adapter) -> StateDict:
    """Return the weights with the adapter in them, each in its own dtype."""
    merged = StateDict(weights)
    for name, (a, b) in adapter.pairs.items():
        old = weights[f"{name}.weight"]
        change = (b.detach().float() @ a.detach().float()) * adapter.scale
        merged[f"{name}.weight"] = (old.float() + change.to(old.device)).to(old.dtype)
    return merged


def to_eight_bits(matrix: torch.Tensor, along: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return whole numbers from -127 to 127, and the scale of each of the adapter's ranks."""
    matrix = matrix.detach().float().cpu()
    scales = (matrix.abs().amax(1 - along, keepdim=True) / _LARGEST).clamp(min=1e-12)
    return (matrix / scales).round().to(torch.int8), scales


def as_stored(adapter: Adapter) -> Adapter:
    """Return the adapter as it comes back from a file of 8 bits."""
    pairs = {}
    for name, pair in adapter.pairs.items():
        parts = [to_eight_bits(matrix, along) for along, matrix in enumerate(pair)]
        a, b = ((whole.float() * scales).to(adapter.parameters[0].device) for whole, scales in parts)
        pairs[name] = (a, b)
    return Adapter(adapter.rank, adapter.alpha, pairs)


# ---- its file --------------------------------------------------------------------------------------


def save_adapter(adapter: Adapter, path: Path, bits: int = 16) -> None:
    """Write the adapter in fp16, or in 8 bits with a scale for each rank."""
    tensors: dict[str, torch.Tensor] = {}
    for name, pair in adapter.pairs.items():
        for along, (which, matrix) in enumerate(zip("AB", pair, strict=True)):
            key = f"base_model.model.model.{name}.lora_{which}"
            if bits == 16:
                tensors[f"{key}.weight"] = matrix.detach().half().cpu().contiguous()
            else:
                whole, scales = to_eight_bits(matrix, along)
                tensors[f"{key}.weight"], tensors[f"{key}.scales"] = whole.contiguous(), scales.contiguous()
    header: dict[str, Any] = {"__metadata__": {"rank": str(adapter.rank), "alpha": str(adapter.alpha)}}
    at = 0
    for name, each in tensors.items():
        size = each.numel() * each.element_size()
        header[name] = {
            "dtype": _NAMES[each.dtype],
            "shape": list(each.shape),
            "data_offsets": [at, at + size],
        }
        at += size
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for each in tensors.values():
            file.write(each.numpy().tobytes())
    part.rename(path)


def load_adapter(path: Path, shape: Shape, weights: StateDict, device: torch.device | str = "cpu") -> Adapter:
    """Read an adapter of this model, in fp32. Raise `FileProblem` if it is damaged, or another model's."""
    try:
        raw = path.read_bytes()
        tensors, metadata = _read_tensors(raw)
        rank, alpha = int(metadata["rank"]), float(metadata["alpha"])
    except (OSError, ValueError, KeyError, TypeError, struct.error, RuntimeError) as error:
        raise FileProblem(
            f"{path.name} is no adapter that can be read: {error}.", "Get it or train it again."
        ) from error
    pairs = {}
    wanted = projections(shape)
    for name in wanted:
        found = [_taken(tensors, f"base_model.model.model.{name}.lora_{which}") for which in "AB"]
        rows, columns = weights[f"{name}.weight"].shape
        if [None if each is None else tuple(each.shape) for each in found] != [(rank, columns), (rows, rank)]:
            raise _foreign(path, name)
        a, b = (each.to(device, torch.float32).requires_grad_() for each in found if each is not None)
        pairs[name] = (a, b)
    if tensors:
        raise _foreign(path, next(iter(tensors)))
    return Adapter(rank, alpha, pairs)


def _taken(tensors: dict[str, torch.Tensor], key: str) -> torch.Tensor | None:
    whole, scales = tensors.pop(f"{key}.weight", None), tensors.pop(f"{key}.scales", None)
    if whole is None or whole.dtype != torch.int8:
        return whole
    ranks = whole.shape[0 if key.endswith("A") else 1]
    return whole.float() * scales if scales is not None and scales.numel() == ranks else None


def _read_tensors(raw: bytes) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    (size,) = struct.unpack_from("<Q", raw)
    if size > min(len(raw) - 8, _MAX_HEADER):
        raise ValueError("it is cut off")
    header = json.loads(raw[8 : 8 + size])
    metadata = header.pop("__metadata__")
    data, tensors, used = memoryview(raw)[8 + size :], {}, 0
    for name, entry in header.items():
        dtype, width = _DTYPES[entry["dtype"]]
        begin, end = entry["data_offsets"]
        count = math.prod(entry["shape"])
        if not 0 <= begin <= end <= len(data) or end - begin != count * width:
            raise ValueError(f"{name} is cut off")
        used += end - begin
        matrix = torch.frombuffer(bytearray(data[begin:end]), dtype=dtype).reshape(entry["shape"])
        if not _is_finite(matrix):
            raise ValueError(f"{name} has no numbers in it")
        tensors[name] = matrix
    if used != len(data):
        raise ValueError(f"{len(data) - used} bytes belong to nothing")
    return tensors, metadata


def _is_finite(matrix: torch.Tensor) -> bool:
    return bool(torch.isfinite(matrix).all())


def _foreign(path: Path, name: str) -> FileProblem:
    return FileProblem(
        f"{path.name} was made for another model: {name} does not fit.", "Use the adapter of this model."
    )

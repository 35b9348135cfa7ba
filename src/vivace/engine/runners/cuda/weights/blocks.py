"""A GGUF's quantised blocks become numbers, with torch, where the bytes are.

To the bit what the gguf package makes of them (a test compares), in small steps of fp32 and nothing fused.
Owns the formats that are common. Others (the IQ kinds of 1 to 3 bits) are unpacked by the gguf package on the
CPU, if it is installed. Does not read files.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

ELEMENTS_AT_ONCE = {"cuda": 1 << 25, "cpu": 1 << 19}  # in fp32, several times; on the CPU what caches hold
HOST_THREADS = 4  # of what the gguf package unpacks
_FP4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # doubled
_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

Unpack = Callable[[torch.Tensor], torch.Tensor]  # [blocks, bytes] → [blocks, numbers] of fp32


class Kind(NamedTuple):
    """How the numbers of a tensor are stored."""

    name: str
    block: int  # numbers
    block_bytes: int
    unpack: Unpack | None = None  # None: nothing is to be done, or the gguf package does it
    plain: torch.dtype | None = None  # of numbers that are stored as they are

    def bytes_of(self, count: int) -> int:
        return count // self.block * self.block_bytes


def unpack_rows(raw: torch.Tensor, kind: Kind, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Return bytes as a matrix [rows, columns] in memory of its own."""
    if kind.plain is not None:
        return raw.view(kind.plain).reshape(-1, columns).to(dtype, copy=True)
    row_bytes = kind.bytes_of(columns)
    rows = raw.numel() // row_bytes
    raw = raw.reshape(rows, row_bytes)
    unpack = kind.unpack or (lambda blocks: _unpack_on_host(kind, blocks))
    out = torch.empty(rows, columns, dtype=dtype, device=raw.device)
    step = max(1, ELEMENTS_AT_ONCE[raw.device.type] // columns)
    for start in range(0, rows, step):
        part = raw[start : start + step].reshape(-1, kind.block_bytes)
        out[start : start + step] = unpack(part).reshape(-1, columns)
    return out


def _halves(blocks: torch.Tensor, begin: int) -> torch.Tensor:
    """Return the fp16 number at byte `begin` of each block as [blocks, 1] of fp32."""
    return blocks[:, begin : begin + 2].contiguous().view(torch.float16).float()


def _shifted(part: torch.Tensor, width: int, shifts: tuple[int, ...], mask: int) -> torch.Tensor:
    """Cut [blocks, bytes] into runs of `width`; return them at each shift: [blocks, runs * shifts, width]."""
    runs = part.reshape(len(part), -1, width)
    cut = torch.stack([runs >> shift & mask for shift in shifts], dim=2)
    return cut.reshape(len(part), -1, width)


def _nibbles(part: torch.Tensor, width: int) -> torch.Tensor:
    return _shifted(part, width, (0, 4), 15)


def _scales_and_minima(part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return 8 scales and 8 minima of 6 bits out of 12 bytes, as [blocks, 8, 1]."""
    d, m, both = part[:, :4], part[:, 4:8], part[:, 8:]
    scales = torch.cat([d & 63, both & 15 | d >> 2 & 48], dim=1)
    minima = torch.cat([m & 63, both >> 4 | m >> 2 & 48], dim=1)
    return scales.float()[..., None], minima.float()[..., None]


def _q8_0(blocks: torch.Tensor) -> torch.Tensor:
    return blocks[:, 2:].contiguous().view(torch.int8).float() * _halves(blocks, 0)


def _q4_0(blocks: torch.Tensor) -> torch.Tensor:
    return _halves(blocks, 0) * (_nibbles(blocks[:, 2:], 16).flatten(1).float() - 8)


def _q4_1(blocks: torch.Tensor) -> torch.Tensor:
    scaled = _halves(blocks, 0) * _nibbles(blocks[:, 4:], 16).flatten(1).float()
    return scaled + _halves(blocks, 2)


def _fifth_bits(part: torch.Tensor) -> torch.Tensor:
    """Return 32 bits out of 4 bytes, in order, worth 16 each."""
    bits = torch.stack([part >> shift & 1 for shift in range(8)], dim=-1)
    return bits.flatten(1) << 4


def _q5_0(blocks: torch.Tensor) -> torch.Tensor:
    integers = _nibbles(blocks[:, 6:], 16).flatten(1) | _fifth_bits(blocks[:, 2:6])
    return _halves(blocks, 0) * (integers.float() - 16)


def _q5_1(blocks: torch.Tensor) -> torch.Tensor:
    integers = _nibbles(blocks[:, 8:], 16).flatten(1) | _fifth_bits(blocks[:, 4:8])
    return _halves(blocks, 0) * integers.float() + _halves(blocks, 2)


def _q2_k(blocks: torch.Tensor) -> torch.Tensor:
    scales = blocks[:, :16]
    step = (_halves(blocks, 80) * (scales & 15).float())[..., None]
    least = (_halves(blocks, 82) * (scales >> 4).float())[..., None]
    integers = _shifted(blocks[:, 16:80], 32, (0, 2, 4, 6), 3).reshape(-1, 16, 16)
    return (step * integers.float() - least).flatten(1)


def _q3_k(blocks: torch.Tensor) -> torch.Tensor:
    low = _shifted(blocks[:, 96:104], 8, (0, 4), 15).flatten(1)
    high = _shifted(blocks[:, 104:108], 4, (0, 2, 4, 6), 3).flatten(1)
    step = (_halves(blocks, 108) * ((low | high << 4).float() - 32))[..., None]
    integers = _shifted(blocks[:, 32:96], 32, (0, 2, 4, 6), 3).reshape(-1, 16, 16)
    is_kept = _shifted(blocks[:, :32], 32, tuple(range(8)), 1).reshape(-1, 16, 16)
    return (step * (integers.float() - 4 * (1 - is_kept.float()))).flatten(1)


def _q4_k(blocks: torch.Tensor) -> torch.Tensor:
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    step, least = _halves(blocks, 0)[..., None] * scales, _halves(blocks, 2)[..., None] * minima
    return (step * _nibbles(blocks[:, 16:], 32).float() - least).flatten(1)


def _q5_k(blocks: torch.Tensor) -> torch.Tensor:
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    step, least = _halves(blocks, 0)[..., None] * scales, _halves(blocks, 2)[..., None] * minima
    high = _shifted(blocks[:, 16:48], 32, tuple(range(8)), 1)
    return (step * (_nibbles(blocks[:, 48:], 32) | high << 4).float() - least).flatten(1)


def _q6_k(blocks: torch.Tensor) -> torch.Tensor:
    low = _nibbles(blocks[:, :128], 64).reshape(-1, 8, 32)
    high = _shifted(blocks[:, 128:192], 32, (0, 2, 4, 6), 3)
    scales = blocks[:, 192:208].contiguous().view(torch.int8).float()
    step = (_halves(blocks, 208) * scales)[..., None]
    integers = (low | high << 4).reshape(-1, 16, 16).float() - 32
    return (step * integers).flatten(1)


def _look_up(indices: torch.Tensor, values: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32, device=indices.device)[indices.int()]


def _mxfp4(blocks: torch.Tensor) -> torch.Tensor:
    exponent = blocks[:, :1].int()
    bits = torch.where(exponent < 2, 0x0020_0000 << exponent.clamp(max=1), (exponent - 1) << 23)
    return bits.view(torch.float32) * _look_up(_nibbles(blocks[:, 1:], 16).flatten(1), _FP4)


def _iq4_nl(blocks: torch.Tensor) -> torch.Tensor:
    return _halves(blocks, 0) * _look_up(_nibbles(blocks[:, 2:], 16).flatten(1), _IQ4)


def _iq4_xs(blocks: torch.Tensor) -> torch.Tensor:
    low = _shifted(blocks[:, 4:8], 1, (0, 4), 15).flatten(1)
    high = _shifted(blocks[:, 2:4], 1, (0, 2, 4, 6), 3).flatten(1)
    step = (_halves(blocks, 0) * ((low | high << 4).float() - 32))[..., None]
    return (step * _look_up(_nibbles(blocks[:, 8:], 16).reshape(-1, 8, 32), _IQ4)).flatten(1)


KINDS = {  # by the number that a GGUF has for it
    0: Kind("F32", 1, 4, plain=torch.float32),
    1: Kind("F16", 1, 2, plain=torch.float16),
    2: Kind("Q4_0", 32, 18, _q4_0),
    3: Kind("Q4_1", 32, 20, _q4_1),
    6: Kind("Q5_0", 32, 22, _q5_0),
    7: Kind("Q5_1", 32, 24, _q5_1),
    8: Kind("Q8_0", 32, 34, _q8_0),
    10: Kind("Q2_K", 256, 84, _q2_k),
    11: Kind("Q3_K", 256, 110, _q3_k),
    12: Kind("Q4_K", 256, 144, _q4_k),
    13: Kind("Q5_K", 256, 176, _q5_k),
    14: Kind("Q6_K", 256, 210, _q6_k),
    20: Kind("IQ4_NL", 32, 18, _iq4_nl),
    23: Kind("IQ4_XS", 256, 136, _iq4_xs),
    30: Kind("BF16", 1, 2, plain=torch.bfloat16),
    39: Kind("MXFP4", 32, 17, _mxfp4),
}


def kind_of(number: int) -> Kind:
    """Return the kind of that number. Raise ValueError with its name if nobody here can unpack it."""
    if number in KINDS:
        return KINDS[number]
    try:
        import gguf  # type: ignore[import-not-found,import-untyped,unused-ignore]
        import numpy as np
    except ImportError:
        raise ValueError(f"number {number} (the gguf package may know it)") from None
    try:
        found = gguf.GGMLQuantizationType(number)
    except ValueError:
        raise ValueError(f"number {number}") from None
    try:
        block, block_bytes = gguf.GGML_QUANT_SIZES[found]
        gguf.dequantize(np.zeros((1, block_bytes), np.uint8), found)
    except (KeyError, NotImplementedError):
        raise ValueError(found.name) from None
    return Kind(found.name, block, block_bytes)


def _unpack_on_host(kind: Kind, blocks: torch.Tensor) -> torch.Tensor:
    import gguf
    import numpy as np

    number = gguf.GGMLQuantizationType[kind.name]

    def one(part: Any) -> Any:
        return gguf.dequantize(part, number)

    with ThreadPoolExecutor(HOST_THREADS) as threads:
        parts = threads.map(one, np.array_split(blocks.cpu().numpy(), HOST_THREADS))
    return torch.from_numpy(np.concatenate(list(parts))).to(blocks.device)

"""Packed weights as the tensor core takes them, in Triton: unpacked in the registers that it reads.

Weights are read as they lie (`weights/layout.py`, `weights/int4.py`, `weights/oss.py`), a thread's bytes in
one piece; what they are multiplied by comes in that order, too (`lying_place`). The compiler keeps them in
registers where all that a weight is made of is loads, constants, elementwise steps and views. Owns that order
and the unpacking of each format; whose rows are multiplied is `grouped`'s.
"""

from collections.abc import Iterable

import torch  # type: ignore[import-not-found,unused-ignore]
import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]

from vivace.engine.runners.cuda.decode.plan import MXFP4, tile_bytes
from vivace.engine.runners.cuda.weights.layout import Matrix

MOST_LIFT = 126  # powers of two, see `lift_of`
_MOST_LIFT = tl.constexpr(MOST_LIFT)
_LARGEST_SCALE = 128  # as a byte: with all of the lift 254, the largest exponent of a bf16
_SCALE_BYTES = 16  # of 8 rows of 64 columns, behind their numbers


def width_of(matrix: Matrix, *, is_mxfp4: bool) -> int:
    return MXFP4 if is_mxfp4 else {torch.uint8: 4, torch.int8: 8, torch.bfloat16: 16}[matrix.tiles.dtype]


def shifts_of(width: int) -> torch.Tensor:
    """Return how far up in a word of scales that of each row of a tile is.

    These are read, for of what it computes itself the compiler does not see that threads could have it in
    the layout of the tensor core: it would send all weights through shared memory once more.
    """
    row = torch.arange(8, dtype=torch.int32)
    return row % 2 * 16 if width == 4 else row % 4 * 8


# Four bytes, $4, become eight bf16: the low halves in $0 and $1, the high ones in $2 and $3. In pairs that is
# less than half of the instructions that one at a time would take. A bf16 whose last digits are a number is
# 128 + the number. Steps are $5 and $6, of the high halves $9 and $10; zeros are behind them.
_INT4_REGISTERS = tl.constexpr("=&r,=&r,=&r,=&r,r,r,r,r,r,r,r,r,r")
_INT4 = tl.constexpr("""{
    .reg .b32 one, two, unit, less, none;
    mov.b32 unit, 0x3f803f80; mov.b32 less, 0xc300c300; mov.b32 none, 0x80008000;
    prmt.b32 one, $4, 0, 0x4140; prmt.b32 two, $4, 0, 0x4342;
    lop3.b32 $0, one, 0x000f000f, 0x43004300, 0xea; lop3.b32 $1, two, 0x000f000f, 0x43004300, 0xea;
    shr.b32 one, one, 4; shr.b32 two, two, 4;
    lop3.b32 $2, one, 0x000f000f, 0x43004300, 0xea; lop3.b32 $3, two, 0x000f000f, 0x43004300, 0xea;
    fma.rn.bf16x2 $0, $0, unit, less; fma.rn.bf16x2 $1, $1, unit, less;
    fma.rn.bf16x2 $2, $2, unit, less; fma.rn.bf16x2 $3, $3, unit, less;
    fma.rn.bf16x2 $0, $0, unit, $7; fma.rn.bf16x2 $1, $1, unit, $8;
    fma.rn.bf16x2 $2, $2, unit, $11; fma.rn.bf16x2 $3, $3, unit, $12;
    fma.rn.bf16x2 $0, $0, $5, none; fma.rn.bf16x2 $1, $1, $6, none;
    fma.rn.bf16x2 $2, $2, $9, none; fma.rn.bf16x2 $3, $3, $10, none;
}""")
# The same of MXFP4, whose digits are those of a bf16 that is 126 powers of two smaller; scales, $5 and $6,
# are as many larger. A product with 2^6 + 2^12 (of a high half 2^2 + 2^8) puts digits and sign in place.
_FP4_REGISTERS = tl.constexpr("=&r,=&r,=&r,=&r,r,r,r")
_FP4 = tl.constexpr("""{
    .reg .b32 one, two, none;
    mov.b32 none, 0x80008000;
    prmt.b32 one, $4, 0, 0x4140; prmt.b32 two, $4, 0, 0x4342;
    and.b32 $0, one, 0x000f000f; mul.lo.u32 $0, $0, 0x1040; and.b32 $0, $0, 0x81c081c0;
    and.b32 $1, two, 0x000f000f; mul.lo.u32 $1, $1, 0x1040; and.b32 $1, $1, 0x81c081c0;
    and.b32 $2, one, 0x00f000f0; mul.lo.u32 $2, $2, 0x0104; and.b32 $2, $2, 0x81c081c0;
    and.b32 $3, two, 0x00f000f0; mul.lo.u32 $3, $3, 0x0104; and.b32 $3, $3, 0x81c081c0;
    fma.rn.bf16x2 $0, $0, $5, none; fma.rn.bf16x2 $1, $1, $6, none;
    fma.rn.bf16x2 $2, $2, $5, none; fma.rn.bf16x2 $3, $3, $6, none;
}""")


def lift_of(matrices: Iterable[Matrix]) -> int:
    """Return by how many powers of two scales of MXFP4 are raised when weights are unpacked.

    By the 126 that unpacked digits lack, if a bf16 has room for that: up to a scale of 2. Where one is
    larger, by fewer, and sums come out so much too small (`lowered` mends that).
    """
    blocks = (matrix.tiles.view(-1, tile_bytes(64, MXFP4)) for matrix in matrices)
    largest = max(int(block[:, -_SCALE_BYTES:].max()) for block in blocks)
    return max(0, MOST_LIFT - max(0, largest - _LARGEST_SCALE))


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def lowered(total, lift):  # type: ignore[no-untyped-def]
    """Return sums as large as they would be with all of the lift."""
    exponent = tl.full([1, 1], _MOST_LIFT + 127, tl.int32) - lift
    return total * (exponent << 23).to(tl.float32, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def add_block(  # type: ignore[no-untyped-def]
    total, tiles, words, shifts, lift, first, row, block, x,
    COLUMNS: tl.constexpr, WIDTH: tl.constexpr, IS_CUDA: tl.constexpr,
):  # fmt: skip
    """Add the products of 64 columns of some rows of the weights, which lie from tile `first` on."""
    tile, g = row // 8, row % 8
    at = (first + tile.to(tl.int64)) * (COLUMNS // 64) + block
    k = tl.arange(0, 64 if WIDTH == 8 else 32)[None, :]
    if WIDTH == 8:
        weight = tl.load(tiles + (at * 512 + g * 64)[:, None] + k).to(x.dtype)
        weight = weight.reshape(row.shape[0], 4, 4, 2, 2).trans(0, 2, 3, 1, 4)
    elif WIDTH == 16:
        low = tl.load(tiles + (at * 512 + g * 32)[:, None] + k).to(x.dtype)
        high = tl.load(tiles + (at * 512 + 256 + g * 32)[:, None] + k).to(x.dtype)
        weight = tl.join(low, high).trans(0, 2, 1)
    else:
        shift = tl.load(shifts + g)
        if WIDTH == 4:
            byte = tl.load(tiles + (at * 288 + g * 32)[:, None] + k)
            pair = words + at * 72 + 64 + g // 2
            low, high = _from_int4(byte, tl.load(pair) >> shift, tl.load(pair + 4) >> shift, IS_CUDA)
        else:
            byte = tl.load(tiles + (at * 272 + g * 32)[:, None] + k)
            # In two dimensions: threads then read their own scales, and need not exchange them.
            exponent = words + (at * 68 + 64 + g // 4)[:, None] + 2 * tl.arange(0, 2)[None, :]
            scale = (tl.load(exponent) >> shift[:, None] & 255) + lift << 23
            scale = scale.to(tl.float32, bitcast=True)[:, None, :, None]
            scale = tl.broadcast_to(scale, (row.shape[0], 4, 2, 4)).reshape(row.shape[0], 32)
            low, high = _from_mxfp4(byte, scale, IS_CUDA)
        weight = tl.join(low.to(x.dtype), high.to(x.dtype))
        weight = weight.reshape(row.shape[0], 4, 2, 2, 2, 2).trans(0, 2, 5, 3, 1, 4)
    return _ended(tl.dot(weight.reshape(row.shape[0], 64), x, total), IS_CUDA)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _ended(total, IS_CUDA: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return a sum whose product has ended. It is looked at, by no instruction: the compiler waits before.

    It would unpack the next weights meanwhile, into registers that the tensor core still reads from: Triton
    3.6 asks for that, and no CUDA's assembler before 13.3 knows better (triton-lang/triton#9433).
    """
    if IS_CUDA:
        total = tl.inline_asm_elementwise("", "=f,0", [total], dtype=tl.float32, is_pure=True, pack=1)
    return total


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _from_int4(byte, low_pair, high_pair, IS_CUDA: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return (16 × number − zero) × step of the low and the high halves; numbers fit into a bf16."""
    if IS_CUDA:
        low_step, low_zero = _step_and_zero(low_pair)
        high_step, high_zero = _step_and_zero(high_pair)
        low, high = tl.inline_asm_elementwise(
            _INT4, _INT4_REGISTERS, [byte, low_step, low_zero, high_step, high_zero],
            dtype=(tl.bfloat16, tl.bfloat16), is_pure=True, pack=4,
        )  # fmt: skip
    else:
        number = byte.to(tl.int32)
        low = (number & 15) * 16 - (low_pair >> 8 & 255)[:, None]
        high = (number >> 4) * 16 - (high_pair >> 8 & 255)[:, None]
        low, high = low * (low_pair & 255)[:, None], high * (high_pair & 255)[:, None]
        low, high = low.to(tl.float32), high.to(tl.float32)
    return low, high


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _step_and_zero(pair):  # type: ignore[no-untyped-def]
    """Return 16 × step and −zero / 16, both exact."""
    step, zero = (pair & 255).to(tl.float32) * 16.0, (pair >> 8 & 255).to(tl.float32) * -0.0625
    return step.to(tl.bfloat16)[:, None], zero.to(tl.bfloat16)[:, None]


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _from_mxfp4(byte, scale, IS_CUDA: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the numbers of the low and the high halves, as much smaller as `scale` lacks of the lift."""
    if IS_CUDA:
        low, high = tl.inline_asm_elementwise(
            _FP4, _FP4_REGISTERS, [byte, scale.to(tl.bfloat16)],
            dtype=(tl.bfloat16, tl.bfloat16), is_pure=True, pack=4,
        )  # fmt: skip
    else:
        low, high = _fp4_digits(byte.to(tl.int32) & 15) * scale, _fp4_digits(byte.to(tl.int32) >> 4) * scale
    return low, high


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _fp4_digits(number):  # type: ignore[no-untyped-def]
    """Return a number 126 powers of two smaller, whose digits are then those of a float."""
    return (((number & 8) << 28) | ((number & 7) << 22)).to(tl.float32, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def lying_place(column, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return where the products want a column of a row, among the 64 of its block.

    In a row of a tile the bytes of thread t of four lie together: 8, or 16 of 8 bits. Of 16 columns the
    tensor core takes 2t, 2t + 1, 2t + 8 and 2t + 9 from it: those are its next four bytes, or halves of them.
    """
    a, t, b, c, d = column // 32 % 2, column // 8 % 4, column // 4 % 2, column // 2 % 2, column % 2
    if WIDTH == 8:
        place = a * 32 + b * 16 + c * 8 + t * 2 + d
    elif WIDTH == 4:
        place = b * 32 + a * 16 + c * 8 + t * 2 + d
    elif WIDTH == 16:
        place = column % 64
    else:
        place = a * 32 + d * 16 + b * 8 + t * 2 + c
    return column // 64 * 64 + place

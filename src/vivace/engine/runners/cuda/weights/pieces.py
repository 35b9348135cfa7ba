"""Where each weight of a model lies in its files, and what its bytes are: a checkpoint's table of contents.

Owns reading one weight to the host and turning its bytes into numbers. What the table says is `checkpoint`'s
and `safetensors_folder`'s; how blocks are unpacked is `blocks`'; reading all of them to a GPU is `stream`'s.
"""

import math
import os
from pathlib import Path
from typing import NamedTuple, Protocol

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, Shape
from vivace.engine.runners.cuda.weights.blocks import Kind, unpack_rows
from vivace.errors import StartError


class Weights(Protocol):
    """What a model is built of: weights by name, in memory (`StateDict`) or on their way (`WeightStream`)."""

    def __contains__(self, name: object, /) -> bool: ...

    def rows(self, *names: str) -> torch.Tensor:
        """Return these weights below each other."""


class Piece(NamedTuple):
    """One weight in a file."""

    file: Path
    offset: int  # from the beginning of the file
    shape: tuple[int, ...]  # rows first
    kind: Kind
    dtype: torch.dtype  # of its numbers when it is unpacked
    has_side_by_side_pairs: bool = False  # rotary pairs are neighbours, as Llama's GGUF has them

    @property
    def size(self) -> int:
        """Return its bytes in the file."""
        return self.kind.bytes_of(math.prod(self.shape))

    def is_continued_by(self, other: "Piece") -> bool:
        """Return whether both can be read and unpacked at once."""
        alike = (self.file, self.shape[-1], self.kind, self.dtype) == (
            other.file, other.shape[-1], other.kind, other.dtype,
        )  # fmt: skip
        is_plain = not (self.has_side_by_side_pairs or other.has_side_by_side_pairs)
        return alike and is_plain and len(self.shape) > 1 and self.offset + self.size == other.offset

    def unpack(self, raw: torch.Tensor) -> torch.Tensor:
        """Return the numbers of its bytes, and of those of all that continue it, in memory of their own."""
        rows = unpack_rows(raw, self.kind, self.shape[-1], self.dtype)
        if self.has_side_by_side_pairs:
            rows = _split_rotary_pairs(rows)
        return rows if len(self.shape) > 1 else rows.reshape(self.shape)


class Checkpoint(NamedTuple):
    """All that is known of a model's weights before any of them is read."""

    shape: Shape
    pieces: dict[str, Piece]  # by Hugging Face's names, without the prefix `model.`
    computed: StateDict  # weights that no file has


def read_piece(piece: Piece) -> torch.Tensor:
    """Return one weight, on the host."""
    raw = torch.empty(piece.size, dtype=torch.uint8)
    try:
        with piece.file.open("rb") as file:
            read_exactly(file.fileno(), raw.numpy().data, piece.offset, piece.file)
    except OSError as error:
        raise unreadable(piece.file, error) from error
    return piece.unpack(raw)


def read_exactly(descriptor: int, target: memoryview, offset: int, file: Path) -> None:
    """Fill `target` from the file. Raise `StartError` if the file ends before."""
    done = 0
    while done < len(target):
        count = os.preadv(descriptor, [target[done:]], offset + done)
        if not count:
            raise cut_off(file)
        done += count


def cut_off(file: Path) -> StartError:
    return StartError(f"{file.name} ends before its weights do.", "Pull it again.")


def unreadable(file: Path, error: OSError) -> StartError:
    return StartError(
        f"{file.name} cannot be read: {error.strerror or error}.",
        "See that its disk answers, or pull it again.",
    )


def _split_rotary_pairs(rows: torch.Tensor) -> torch.Tensor:
    """Move rotary pairs 64 apart."""
    pairs = rows.reshape(-1, HEAD_DIM // 2, 2, rows.shape[-1])
    return pairs.transpose(1, 2).reshape(rows.shape).contiguous()

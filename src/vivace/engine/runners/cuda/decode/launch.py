"""One launch of a kernel: its name, its size and its arguments.

Owns the shape only. What is launched for a pass is for `launches`, and who runs it for `kernels/driver`.
"""

from typing import NamedTuple, TypeAlias

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.decode.plan import Size


class Tiles(NamedTuple):
    """A tensor as kernels read it that bring tiles of it: some rows, 128 bytes of each."""

    rows: torch.Tensor  # [..., columns]
    at_once: int = 64


Argument: TypeAlias = torch.Tensor | int | float | Tiles


class Launch(NamedTuple):
    kernel: str
    size: Size
    arguments: tuple[Argument, ...]
    overlaps: bool = True  # may begin before the launch before it has ended

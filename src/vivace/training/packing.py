"""Examples side by side in rows of one length, behind one copy of the prefix that all of them share.

Owns which examples lie in a row, each token's position and segment, and what may attend to what: an example
to the prefix and to itself. So it computes what it would alone (a test compares), for a third of the tokens
less. Does not own the model.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.training.examples import Example

PREFIX, PADDING = 0, -1  # segments; examples count from 1
ALIGNED = 128  # rows are multiples of it: with 64 over, cuDNN's masked attention gives NaN (torch#196678)
_OPEN_ROWS = 64  # that an example may still be put into


@dataclass(frozen=True)
class Batch:
    """Rows of tokens [rows, width], and the places whose next token is an answer's."""

    tokens: torch.Tensor
    positions: torch.Tensor
    segments: torch.Tensor
    places: torch.Tensor  # [targets, 2]: row and column
    targets: torch.Tensor  # [targets]
    owners: torch.Tensor  # [targets]: the example's index in what was packed
    changed: torch.Tensor  # [targets]: whether it is a change, and no copy of the old text

    def to(self, device: torch.device | str) -> "Batch":
        return Batch(
            *(getattr(self, name).to(device, non_blocking=True) for name in self.__dataclass_fields__)
        )


def pack(lengths: Sequence[int], room: int, chance: random.Random) -> list[list[int]]:
    """Return rows of indices whose lengths fit into `room`, in random order. What is longer is left out."""
    order = [index for index, length in enumerate(lengths) if length <= room]
    chance.shuffle(order)
    rows: list[list[int]] = []
    left: list[int] = []
    for index in order:
        fitting = [
            at for at in range(max(0, len(rows) - _OPEN_ROWS), len(rows)) if left[at] >= lengths[index]
        ]
        at = min(fitting, key=lambda each: left[each], default=len(rows))
        if at == len(rows):
            rows.append([])
            left.append(room)
        rows[at].append(index)
        left[at] -= lengths[index]
    chance.shuffle(rows)
    return rows


def collate(
    prefix: Sequence[int], examples: Sequence[Example], rows: Sequence[Sequence[int]], width: int = 0
) -> Batch:
    """Return rows of examples as tensors, padded to `width`, or else to the longest row."""
    sizes = [len(prefix) + sum(len(examples[index]) for index in row) for row in rows]
    width = -(-max(width, *sizes) // ALIGNED) * ALIGNED
    shape = (len(rows), width)
    tokens, positions = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    segments = torch.full(shape, PADDING, dtype=torch.long)
    places, targets, owners = list[tuple[int, int]](), list[int](), list[int]()
    changed = list[bool]()
    for number, row in enumerate(rows):
        line, where, which = list(prefix), list(range(len(prefix))), [PREFIX] * len(prefix)
        for segment, index in enumerate(row, start=1):
            example, begin = examples[index], len(line)
            line += [*example.prompt, *example.answer]
            where += range(len(prefix), len(prefix) + len(example))
            which += [segment] * len(example)
            first = begin + len(example.prompt) - 1  # this token's next one is the answer's first
            places += [(number, first + step) for step in range(len(example.answer))]
            targets += example.answer
            owners += [index] * len(example.answer)
            changed += example.changed or (True,) * len(example.answer)
        tokens[number, : len(line)] = torch.tensor(line)
        positions[number, : len(line)] = torch.tensor(where)
        segments[number, : len(line)] = torch.tensor(which)
    told = [torch.tensor(each) for each in (places, targets, owners, changed)]
    return Batch(tokens, positions, segments, *told)


def attention_mask(segments: torch.Tensor) -> torch.Tensor:
    """Return what may attend to what, [rows, 1, width, width]: earlier tokens of its own or the prefix."""
    width = segments.shape[1]
    earlier = torch.ones(width, width, dtype=torch.bool, device=segments.device).tril()
    same = segments[:, :, None] == segments[:, None, :]
    is_prefix = (segments == PREFIX)[:, None, :] & (segments != PADDING)[:, :, None]
    return ((same | is_prefix) & earlier)[:, None]

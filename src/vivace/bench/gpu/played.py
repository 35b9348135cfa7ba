"""Edits for random weights, which cannot edit: what a model will say is made its prediction, as if it edited.

Owns the changes between prediction and text. They are those of real commits, so a pass says as many tokens as
it would of the commits; `benchmarks/engine/played_edits.py` shows both. Does not ask a model.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple


class Change(NamedTuple):
    """Tokens that are kept, and how many are then removed from the old text and added to the new one."""

    kept: int
    removed: int = 0
    added: int = 0


# The changes of 12 of the 30 commits that `vivace bench gpu` takes by default. A made-up text repeats
# nothing, so nothing that is added to it can be drafted. These 12 were drawn so that this is made up for:
# with the costs of four models, tokens a pass and tok/s are within 2.5% of those of the true texts.
COMMITS: tuple[tuple[Change, ...], ...] = (
    (Change(5, 0, 10), Change(43)),
    (Change(15, 28), Change(9, 40), Change(6)),
    (Change(44, 0, 7), Change(8, 7, 1), Change(12, 0, 16), Change(20, 0, 29), Change(50)),
    (Change(138, 0, 38), Change(11, 1, 1), Change(34)),
    (Change(43, 1, 1), Change(23)),
    (Change(24, 1, 2), Change(8, 1, 5), Change(13, 0, 15), Change(1)),
    (Change(27, 0, 1), Change(5, 1, 1), Change(1)),
    (Change(24, 1, 1), Change(31, 1, 2), Change(4)),
    (Change(242, 0, 10), Change(49)),
    (Change(114, 0, 2), Change(4, 1, 1), Change(1, 1, 1), Change(8, 0, 2), Change(11)),
    (Change(61, 0, 16), Change(15, 16), Change(23)),
    (Change(152, 0, 3), Change(22, 0, 3), Change(188)),
)


# The changes that Qwen2.5-Coder-1.5B itself makes when it is asked for those 30 commits, greedily: it copies
# more than the authors did, and in some it changes nothing. These are what `vivace bench gpu` times with real
# weights. 10 of the 30, drawn so that tok/s are within 1.3% of those of all with the costs of four models.
ANSWERS: tuple[tuple[Change, ...], ...] = (
    (Change(98),),
    (Change(43, 1, 1), Change(23)),
    (Change(33, 0, 20), Change(3, 9, 1), Change(1, 1, 3), Change(1)),
    (Change(27, 0, 1), Change(5, 1, 1), Change(1)),
    (Change(47, 1, 12), Change(308)),
    (Change(110, 0, 6), Change(1)),
    (Change(66, 0, 18), Change(4, 3, 2), Change(4, 1, 20)),
    (Change(146),),
    (Change(361, 1, 2),),
    (Change(126, 0, 4), Change(2)),
)


def new_tokens(changes: Sequence[Change]) -> int:
    """Return the tokens of the new text."""
    return sum(change.kept + change.added for change in changes)


def old_text(new: Sequence[int], changes: Sequence[Change], vocab: int, seed: int) -> list[int]:
    """Return the text that these changes make `new` of. What they remove is drawn with the seed."""
    chance = random.Random(seed)
    old: list[int] = []
    at = 0
    for kept, removed, added in changes:
        old += new[at : at + kept]
        old += (chance.randrange(vocab) for _ in range(removed))
        at += kept + added
    return old


def random_tokens(vocab: int, count: int) -> list[int]:
    """Return tokens that mean nothing, the same each time."""
    return [(at * 7919 + at * at * 31) % vocab for at in range(count)]

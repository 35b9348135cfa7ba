"""Which tokens of an answer are a change, and which repeat the old unit.

Owns that mask alone. An answer repeats most of its unit: a loss of all tokens alike teaches mostly to copy.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher


def changed_tokens(old: Sequence[int], new: Sequence[int]) -> tuple[bool, ...]:
    """Return for each token of `new` whether it is new, or the first behind something new or left out."""
    found = [False] * len(new)
    for what, _, _, begin, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what != "equal":
            for at in range(begin, min(end + 1, len(new))):
                found[at] = True
    return tuple(found)

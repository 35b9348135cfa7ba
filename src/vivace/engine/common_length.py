"""How many tokens two texts begin with in common."""

from collections.abc import Sequence

_BLOCK = 1024


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common beginning of two lists, or of two arrays.

    Slices are compared, at C speed: both must be of one type.
    """
    low, most = 0, min(len(one), len(other))
    while low + _BLOCK <= most and one[low : low + _BLOCK] == other[low : low + _BLOCK]:
        low += _BLOCK
    high = min(low + _BLOCK, most)
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low

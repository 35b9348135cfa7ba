"""`truncation: "auto"`: a conversation that is too long loses its oldest items, not its instructions.

Owns which items go: with a call, its output too. The last message of the user always stays.
"""

from collections.abc import Callable, Sequence

from vivace.errors import ContextOverflow
from vivace.protocol.shapes.items import CALLS, OUTPUTS, InputItem

LEAST_OUTPUT_TOKENS = 256


def room_for_prompt(limit_tokens: int, max_output_tokens: int | None) -> int:
    """Return how long a prompt may be, with room for the answer: what was asked for, or a quarter."""
    wanted = max_output_tokens or limit_tokens // 4
    return max(1, limit_tokens - max(LEAST_OUTPUT_TOKENS, min(wanted, limit_tokens // 2)))


def check_room(tokens: int, limit_tokens: int) -> None:
    """Refuse a prompt that cannot fit, in the words of the engine, which would refuse it too."""
    if tokens > limit_tokens:
        raise ContextOverflow(f"{tokens} tokens are needed, and the context holds {limit_tokens}.")


def shortened(
    items: Sequence[InputItem], length_of: Callable[[list[InputItem]], int], room: int
) -> list[InputItem]:
    """Return the items without the fewest of the oldest that must go; all that may go, if nothing fits."""
    droppable = [index for index, item in enumerate(items) if not _is_kept(item)]
    last_user = max((index for index, item in enumerate(items) if item.role == "user"), default=-1)
    droppable = [index for index in droppable if index != last_user]
    low, high = 0, len(droppable)
    while low < high:  # the fewest that fit
        middle = (low + high) // 2
        if length_of(_without(items, droppable[:middle])) <= room:
            high = middle
        else:
            low = middle + 1
    return _without(items, droppable[:low])


def _is_kept(item: InputItem) -> bool:
    return item.type == "additional_tools" or item.role in ("system", "developer")


def _without(items: Sequence[InputItem], indices: Sequence[int]) -> list[InputItem]:
    gone = set(indices)
    kept = [item for index, item in enumerate(items) if index not in gone]
    calls = {item.call_id for item in kept if item.type in CALLS}
    lost = {item.call_id for index, item in enumerate(items) if index in gone and item.type in CALLS}
    orphans = lost - calls
    return [item for item in kept if not (item.type in OUTPUTS and item.call_id in orphans)]

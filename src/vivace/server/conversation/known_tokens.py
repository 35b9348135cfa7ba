"""A history that a client sends again, in the tokens in which it was written.

A model, above all one held by a grammar, does not always write a text in the tokens that a tokenizer would
make of it. A client that sends its whole history sends text: tokenized anew it would differ from the log in
the middle of an answer, and everything behind that would be read again. So where a prompt and a log say the
same bytes in other tokens, the log's are taken. Control tokens are never taken for text, nor text for them.

Owns finding those places. Does not own which logs may be looked at.
"""

from array import array
from collections.abc import Iterable, Sequence
from heapq import nlargest

from vivace.server.conversation.moved_blocks import BytesOf, moved
from vivace.server.conversation.token_log import TokenLog

STRETCH_TOKENS = 64  # the longest piece of text in other tokens
TOKEN_BYTES = 4
COMPARED_LOGS = 4  # those that begin most like the prompt: with 32 logs of 10,000 tokens all took 100 ms
FIRST_COMPARED = 64 * TOKEN_BYTES  # at once; then twice as many, and so on


def in_known_tokens(
    prompt: Sequence[int], logs: Sequence[TokenLog], bytes_of: BytesOf, most_tokens: int = 0
) -> list[int]:
    """Return the prompt in the tokens of the log that has most of it.

    `most_tokens`: how long it may become by blocks that its client has moved and the log has in their old
    places, too; 0: they are not looked for.
    """
    mine = array("i", prompt)
    nearest = _nearest(mine, logs)
    if most_tokens:
        with_moved = _known(mine, nearest, bytes_of, keeps_moved=True)
        if len(with_moved) <= most_tokens:
            return with_moved
    return _known(mine, nearest, bytes_of, keeps_moved=False)


def _nearest(mine: "array[int]", logs: Iterable[TokenLog]) -> list["array[int]"]:
    """Return the logs that begin with most of the prompt's tokens, the ones used last first among equals."""
    raw = mine.tobytes()
    copies = [log.copy() for log in logs]
    return nlargest(COMPARED_LOGS, copies, key=lambda log: _shared(raw, 0, log.tobytes(), 0))


def _known(
    mine: "array[int]", logs: Iterable["array[int]"], bytes_of: BytesOf, *, keeps_moved: bool
) -> list[int]:
    most = 0
    known = array("i")
    for theirs in logs:
        length, length_there = _matched(mine, theirs, bytes_of, keeps_moved=keeps_moved)
        if length > most:
            most, known = length, theirs[:length_there]
    return [*known, *mine[most:]]


def _matched(
    mine: "array[int]", theirs: "array[int]", bytes_of: BytesOf, *, keeps_moved: bool
) -> tuple[int, int]:
    """Return how many tokens of each say the same from the beginning, but for moved blocks."""
    raw, raw_there = mine.tobytes(), theirs.tobytes()  # compared as memory, not number by number
    at = at_there = 0
    while True:
        same = _shared(raw, at * TOKEN_BYTES, raw_there, at_there * TOKEN_BYTES) // TOKEN_BYTES
        at, at_there = at + same, at_there + same
        ahead, ahead_there = at + STRETCH_TOKENS, at_there + STRETCH_TOKENS
        stretch = _same_text(mine[at:ahead], theirs[at_there:ahead_there], bytes_of)
        if stretch is None and keeps_moved and at and at_there < len(theirs):
            stretch = moved(mine[at - 1 :], theirs[at_there - 1 :], bytes_of)
        if stretch is None:
            return at, at_there
        at, at_there = at + stretch[0], at_there + stretch[1]


def _shared(mine: bytes, at: int, theirs: bytes, at_there: int) -> int:
    """Return how many bytes are the same from there on, or a few less."""
    count, step = 0, FIRST_COMPARED
    while step >= TOKEN_BYTES:
        one, other = mine[at + count : at + count + step], theirs[at_there + count : at_there + count + step]
        if len(one) == len(other) == step and one == other:
            count += step
            step *= 2
        else:
            step //= 2
    return count


def _same_text(mine: Sequence[int], theirs: Sequence[int], bytes_of: BytesOf) -> tuple[int, int] | None:
    """Return after how many tokens of each both have said the same bytes; None if they do not."""
    text = text_there = b""
    count = count_there = 0
    while not text or text != text_there:
        is_mine = len(text) <= len(text_there)
        tokens, index = (mine, count) if is_mine else (theirs, count_there)
        piece = bytes_of(tokens[index]) if index < len(tokens) else b""
        if not piece:
            return None
        if is_mine:
            text, count = text + piece, count + 1
        else:
            text_there, count_there = text_there + piece, count_there + 1
        if not text.startswith(text_there) and not text_there.startswith(text):
            return None
    return count, count_there

"""A block that a client moves: it stood in an earlier message, and stands behind the newest one now.

aider does so with its rules for answers: with each turn they go from the last question to the new one, and
all that was said in between would be read again. If the log has the block where it was, it stays there, too.
The newest message has it as the client sent it: nothing is left out, and nothing is said that was not.

Owns finding such a block where a prompt and a log part. Does not own the comparison (`known_tokens`).
"""

from collections.abc import Callable, Sequence

BytesOf = Callable[[int], bytes]  # of a token; b"" for one that is no text
LEAST_BYTES = 64  # of a block
GLUE_TOKENS = 4  # the most between two messages


def moved(mine: Sequence[int], theirs: Sequence[int], bytes_of: BytesOf) -> tuple[int, int] | None:
    """Return how many tokens of each to pass over, where the log goes on with a block that was moved.

    `mine`, `theirs`: what follows of the prompt and of the log where they differ, with one token before it.
    """
    return _end_of_message(mine, theirs, bytes_of) or _whole_message(mine, theirs, bytes_of)


def _end_of_message(mine: Sequence[int], theirs: Sequence[int], bytes_of: BytesOf) -> tuple[int, int] | None:
    """The log's message goes on where that of the prompt ends, and the prompt ends with what follows."""
    end, end_there = _control(mine, 1, bytes_of), _control(theirs, 1, bytes_of)
    if end is None or end_there is None or mine[end] != theirs[end_there]:
        return None
    text, text_there = _text(mine[1:end], bytes_of), _text(theirs[1:end_there], bytes_of)
    block = text_there[len(text) :].strip()
    if not text_there.startswith(text) or len(block) < LEAST_BYTES:
        return None
    last = _last_text(mine[end:], bytes_of)
    return (end - 1, end_there - 1) if last.endswith(block) else None


def _whole_message(mine: Sequence[int], theirs: Sequence[int], bytes_of: BytesOf) -> tuple[int, int] | None:
    """The log has a message between two, and it is the prompt's last one now."""
    begin = mine[0]
    if bytes_of(begin) or theirs[0] != begin:
        return None
    starts = [index for index in range(1, len(mine)) if mine[index] == begin]
    if not starts:
        return None
    block = list(mine[starts[-1] + 1 :])
    end = 1 + len(block)
    if list(theirs[1:end]) != block or len(_text(block, bytes_of)) < LEAST_BYTES:
        return None
    following = list(theirs[end : end + GLUE_TOKENS])
    return (0, end + following.index(begin)) if begin in following else None


def _control(tokens: Sequence[int], start: int, bytes_of: BytesOf) -> int | None:
    return next((index for index in range(start, len(tokens)) if not bytes_of(tokens[index])), None)


def _last_text(tokens: Sequence[int], bytes_of: BytesOf) -> bytes:
    """Return the last text between control tokens, without white space around it."""
    pieces: list[bytes] = []
    for token in reversed(tokens):
        piece = bytes_of(token)
        if not piece and b"".join(pieces).strip():
            break
        pieces.insert(0, piece)
    return b"".join(pieces).strip()


def _text(tokens: Sequence[int], bytes_of: BytesOf) -> bytes:
    return b"".join(map(bytes_of, tokens))

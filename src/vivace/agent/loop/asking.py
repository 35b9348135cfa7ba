"""A question whether something may run, made of all that it is about.

Owns the one way in which a question is made: whole, with nothing hidden, bound by a digest to what would
run. What cannot be shown whole is not asked about. Does not own how text is written (`permissions.shown`),
nor what is asked about (`permissions.decision`).
"""

import hashlib

from vivace.agent.events.task import ApprovalAsked
from vivace.agent.permissions.shown import fits, hidden_in, parse, shown, shown_in_line
from vivace.errors import ApprovalNeeded

TITLE_CHARS = 160  # of the one line that stands for a question


def question(
    *, call_id: str, tool: str, title: str, exact: str, reason: str, can_be_kept: bool = False
) -> ApprovalAsked:
    """Return the question about `exact`. Raise ApprovalNeeded if it is too long to be shown whole."""
    written = shown(exact)
    if not fits(written):
        raise ApprovalNeeded(
            f"It is too long to be shown to a person whole ({size_in_words(exact)}), so nobody can allow it.",
            "Write it in parts, or put it into a file that can be read first.",
        )
    reason = shown_in_line(reason.strip())
    if hidden := hidden_in(exact):
        reason = f"{reason} It has characters that cannot be seen: {', '.join(hidden)}."
    return ApprovalAsked(
        call_id=call_id,
        tool=tool,
        title=headline(title),
        shown=written,
        reason=reason,
        digest=digest_of(tool, exact, reason),
        can_be_kept=can_be_kept,
    )


def digest_of(tool: str, exact: str, reason: str) -> str:
    """Return what binds an answer to what would run, and to where: the same command may leave the sandbox."""
    whole = f"{len(tool)}:{tool}:{len(reason)}:{reason}:{exact}"
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


def is_whole(asked: ApprovalAsked) -> bool:
    """Return whether what is shown is all of what the digest stands for: nothing was taken out on the way."""
    return digest_of(asked.tool, parse(asked.shown), asked.reason) == asked.digest


def headline(title: str) -> str:
    """Return a title as one line, which says how much it leaves out."""
    line = shown_in_line(title)
    if len(line) <= TITLE_CHARS:
        return line
    return f"{shown_in_line(title[: TITLE_CHARS // 2].rstrip())} … ({size_in_words(title)} in all)"


def size_in_words(text: str) -> str:
    lines = text.count("\n") + 1
    return f"{f'{lines:,} lines, ' if lines > 1 else ''}{len(text):,} characters"

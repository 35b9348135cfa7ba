"""Output of tools made fit for a model and a terminal: bounded in size, without control characters.

Owns what is cut, and that the cut is said. Does not own secrets (`redaction`): the model may read them, a log
may not.
"""

import re

MAX_CHARS = 24_000  # of one output: about 6,000 tokens
HEAD_SHARE = 0.6
_ESCAPES = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\|\Z)"  # titles, links, the clipboard
    r"|\x1b[ -/]{0,8}[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


def printable(data: bytes | str) -> str:
    """Return text that cannot speak to a terminal: no escape sequences, no control characters.

    A line that a program wrote over itself (with a carriage return) is kept as it was last.
    """
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROLS.sub("\ufffd", text)


def bounded(text: str, most_chars: int = MAX_CHARS) -> str:
    """Return the text, or its head and its tail with a line between them that says what is missing."""
    if len(text) <= most_chars:
        return text
    head, tail = text[: int(most_chars * HEAD_SHARE)], text[-int(most_chars * (1 - HEAD_SHARE)) :]
    head = head[: head.rfind("\n") + 1] or head
    tail = tail[tail.find("\n") + 1 :] or tail
    cut = text[len(head) : len(text) - len(tail)]
    return f"{head}\n[… {len(cut):,} characters ({cut.count(chr(10)):,} lines) are left out here …]\n{tail}"

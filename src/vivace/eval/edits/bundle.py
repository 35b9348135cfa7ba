"""Several files as one text, as tasks and answers of several files are kept: a heading line before each.

Owns the form. A single file is kept as it is, without a heading.
"""

import re

_HEADING = re.compile(r"^==== (.+) ====\n", re.MULTILINE)


def bundle(files: dict[str, str]) -> str:
    """Return the files in one text. Each ends with a newline in it."""
    return "".join(f"==== {path} ====\n{_ended(text)}" for path, text in files.items())


def unbundle(text: str) -> dict[str, str]:
    """Return the files of a text that `bundle` made."""
    _, *parts = _HEADING.split(text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"

"""Text that a person approves or trusts, written so that nothing in it is hidden.

Owns the one way in which it is written: every character that a terminal, a browser or an editor hides, moves
or draws as a blank stands as ⟨U+202E⟩, ⟨ESC⟩ or the like, and all others stand as they are. `parse` gives
back exactly what was written. Nothing is cut and nothing is redacted here: what is too long for a person to
read cannot be approved. Does not own frames and widths (the faces), nor text that nobody approves
(`tools.bounded.printable`, `redaction`).
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

MAX_CHARS = 200_000  # of what a person can be asked about
MAX_LINES = 5_000

NAMES = {"\0": "NUL", "\t": "TAB", "\n": "LF", "\r": "CR", "\x1b": "ESC"}
_BY_NAME = {name: char for char, name in NAMES.items()}
_CODE = rf"U\+[0-9A-F]{{4,6}}|{'|'.join(_BY_NAME)}"
_WRITTEN = re.compile(f"⟨({_CODE})⟩")
_AMBIGUOUS = re.compile(rf"⟨(?=(?:{_CODE})⟩)")
_PLAIN = re.compile(r"[ -~\n]*")
# Characters of other categories that are drawn as nothing or as a blank.
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufffc\U0001d159\U00013441\U00013442")
_HIDDEN_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp", "Me"))
_RANGES = ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0x16FE4, 0x16FE4), (0xE0000, 0xE0FFF))
_OVERLAYS = re.compile("[\u0334-\u0338\u20d2-\u20eb]")
MAX_MARKS = 3  # on one letter
_RIGHT_TO_LEFT = frozenset(("R", "AL", "AN"))
# Of the classes of a line's letters (`_bidi_class`), each linear: a word, a phrase, and what may follow.
_WORD, _PHRASE = re.compile(r"R[Rm]*"), re.compile(r"Rm*(?:s?Rm*)*")
_AFTER = re.compile(r"[^RLD]*(?:L[^R]*)?")


def shown(text: str) -> str:
    """Return the text as a person is shown it: lines stay lines, whatever is hidden is written out."""
    if _PLAIN.fullmatch(text) and " \n" not in text and not text.endswith(" "):
        return text
    return "\n".join(_shown_line(line) for line in text.split("\n"))


def shown_in_line(text: str) -> str:
    """Return the text as one line: line breaks are written out, too."""
    return shown(text).replace("\n", "⟨LF⟩")


def parse(written: str) -> str:
    """Return the text of which `shown` or `shown_in_line` made this."""
    return _WRITTEN.sub(lambda found: _char_of(found[0], found[1]), written)


def visible(text: str, keep: str = "\n") -> str:
    """Return text of files as a person reviews it: hidden characters written out, blanks left as they are."""
    return "".join(char if char in keep or not is_hidden(char) else _written(char) for char in text)


def hidden_in(text: str) -> list[str]:
    """Return the hidden characters of a text, each as it is shown and with its name, if there are any."""
    written = [match[1] for match in _WRITTEN.finditer(shown(text))]
    counted = Counter(char for name in written if (char := _char_of("", name)) not in " ⟨\t")
    return [f"{_written(char)} {unicodedata.name(char, '')}".strip() for char in counted]


def fits(written: str) -> bool:
    """Return whether a person can be shown this, all of it."""
    return len(written) <= MAX_CHARS and written.count("\n") < MAX_LINES


LINE, GOES_ON = "│ ", "┆ "  # in front of the first row of a line, and of its other rows


def in_rows(written: str, width: int) -> list[str]:
    """Return what was shown in rows of a screen, each with a mark in front that no text can take away."""
    room = max(1, width - len(LINE))
    found = []
    for line in written.split("\n"):
        pieces = list(_pieces(line, room))
        found += [LINE + pieces[0], *(GOES_ON + piece for piece in pieces[1:])]
    return found


def _pieces(line: str, room: int) -> Iterator[str]:
    begin = used = 0
    for at, char in enumerate(line):
        cells = 1 if char.isascii() else _cells(char)
        if used + cells > room and at > begin:
            yield line[begin:at]
            begin, used = at, 0
        used += cells
    yield line[begin:]


def _cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


@lru_cache(maxsize=4096)
def is_hidden(char: str) -> bool:
    """Return whether the character is drawn as nothing, as a blank, over others, or steers what draws it."""
    if " " <= char <= "~":
        return False
    code = ord(char)
    return (
        unicodedata.category(char) in _HIDDEN_CATEGORIES
        or char in _BLANKS
        or any(first <= code <= last for first, last in _RANGES)
        or _OVERLAYS.match(char) is not None
    )


def _shown_line(line: str) -> str:
    line_end = len(line) - 1 if line.endswith(" ") else -1
    turns = _turns_around(line)
    written, marks = [], MAX_MARKS
    for at, char in enumerate(line):
        is_mark = not char.isascii() and unicodedata.category(char) == "Mn"
        is_out = (
            is_hidden(char)
            or at == line_end
            or (is_mark and marks >= MAX_MARKS)
            or (turns and unicodedata.bidirectional(char) in _RIGHT_TO_LEFT)
            or (char == "⟨" and _AMBIGUOUS.match(line, at) is not None)
        )
        written.append(_written(char) if is_out else char)
        if not is_mark:  # a mark needs a letter that is drawn
            marks = 0 if not is_out and char.isalpha() else MAX_MARKS
        else:
            marks += 1
    return "".join(written)


def _turns_around(line: str) -> bool:
    """Return whether letters from right to left could change the places of what stands around them."""
    if line.isascii():
        return False
    classes = "".join(_bidi_class(char) for char in line)
    return "R" in classes and not _is_safe(classes)


def _is_safe(classes: str) -> bool:
    """Return whether nothing changes places.

    That holds for one word, or one phrase in quotes, with a letter from left to right in front of it and no
    digits behind it.
    """
    first, last = classes.index("R"), classes.rindex("R")
    before, letters, after = classes[:first], classes[first : last + 1], classes[last + 1 :]
    if "L" in before and _WORD.fullmatch(letters) and _AFTER.fullmatch(after):
        return True
    closing = after.lstrip("m")
    is_quoted = before.endswith("q") and closing.startswith("q") and _PHRASE.fullmatch(letters)
    return bool(is_quoted and "L" in before and _AFTER.fullmatch(closing[1:]))


def _bidi_class(char: str) -> str:
    match unicodedata.bidirectional(char):
        case "R" | "AL" | "AN":
            return "R"
        case "L":
            return "L"
        case "EN":
            return "D"
        case "NSM":
            return "m"
    return {" ": "s", '"': "q", "'": "q"}.get(char, "o")


def _written(char: str) -> str:
    return f"⟨{NAMES.get(char) or f'U+{ord(char):04X}'}⟩"


def _char_of(whole: str, name: str) -> str:
    if name in _BY_NAME:
        return _BY_NAME[name]
    code = int(name[2:], 16)
    return chr(code) if code <= 0x10FFFF else whole

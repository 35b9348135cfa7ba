"""How a model is told that the user interrupted its answer.

Owns the words. They stand in the log, in front of what the user said, and in no item that a client sees. They
only follow what was said already: nothing is prefilled again. Does not own when there was an interruption
(`server/conversation`), nor how messages become tokens.

The words were chosen with `benchmarks/agent/steer_wordings.py`. A message that drops the task ("Stop. Name
three colours.") or asks something is told as a new request. Any other changes the task, so the request is
quoted: where a steer stands alone ("In French, please.") the model forgets what it was doing. Words at the
end of the answer itself would be said again by the model in later answers.
"""

import re
from collections.abc import Iterable, Sequence

from vivace.models.families.base import Entry, Interruption, Message

NEW = "(A new request:)\n\n"
BEGIN, END = '(I had asked: "', '" Answer that again, with this change:)\n\n'
QUOTED_CHARS = 240  # of a request: enough to know which one it was
_DROPS = re.compile(
    r"\b(stop|forget|never ?mind|leave (that|it|this)|drop|skip|enough|something else|cancel|scrap)\b|\?\s*$",
    re.IGNORECASE,
)


def tell_interruptions(entries: Iterable[Entry], request: str = "") -> list[Entry]:
    """Return the entries with each interruption told in the user's message behind it.

    `request` is what the unfinished answer at the end of the log is about; "" if the log ends in none.
    """
    found: list[Entry] = []
    asked, is_interrupted = _quoted(request), False
    for entry in entries:
        match entry:
            case Interruption():
                is_interrupted = _is_answer(found) or (bool(request) and _has_only_system(found))
                continue
            case Message(role="user") if is_interrupted and asked:
                told = _told(entry.text, asked)
                found.append(Message("user", told))
                asked, is_interrupted = _quoted(told), False
                continue
            case Message(role="user"):
                asked = _quoted(entry.text)
        found.append(entry)
    return found


def drops_task(text: str) -> bool:
    """Return whether a message that interrupts wants something else than what is being answered."""
    return bool(_DROPS.search(text))


def _told(text: str, asked: str) -> str:
    return f"{NEW}{text}" if drops_task(text) else f"{BEGIN}{asked}{END}{text}"


def _is_answer(entries: Sequence[Entry]) -> bool:
    last = entries[-1] if entries else None
    return isinstance(last, Message) and last.role == "assistant"


def _has_only_system(entries: Sequence[Entry]) -> bool:
    return all(isinstance(entry, Message) and entry.role == "system" for entry in entries)


def _quoted(text: str) -> str:
    """Return a request on one line. Of a message that interrupted, return the request that it quotes."""
    if text.startswith(BEGIN) and END in text:
        return text.removeprefix(BEGIN).partition(END)[0]
    words = " ".join(text.removeprefix(NEW).split())
    return words if len(words) <= QUOTED_CHARS else f"{words[:QUOTED_CHARS].rstrip()}…"

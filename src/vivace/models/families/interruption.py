"""How a model is told that the user interrupted its answer.

Owns the words. They stand in the log, in front of what the user said, and in no item that a client sees. They
only follow what was said already: nothing is prefilled again. Does not own when there was an interruption
(`server/conversation`), nor how messages become tokens.

The words were chosen with `benchmarks/steer_wordings.py`. The model forgets what it was doing when a steer
stands alone ("In French, please."), so the request is quoted. Words at the end of the answer itself would be
said again by the model in later answers.
"""

from collections.abc import Iterable, Sequence

from vivace.models.families.base import Entry, Interruption, Message

BEGIN, END = '(I had asked: "', '")\n\n'
QUOTED_CHARS = 240  # of a request: enough to know which one it was


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
                found.append(Message("user", f"{BEGIN}{asked}{END}{entry.text}"))
                is_interrupted = False
                continue
            case Message(role="user"):
                asked = _quoted(entry.text)
        found.append(entry)
    return found


def _is_answer(entries: Sequence[Entry]) -> bool:
    last = entries[-1] if entries else None
    return isinstance(last, Message) and last.role == "assistant"


def _has_only_system(entries: Sequence[Entry]) -> bool:
    return all(isinstance(entry, Message) and entry.role == "system" for entry in entries)


def _quoted(text: str) -> str:
    """A request on one line; of a message that interrupted, the request that it quotes."""
    if text.startswith(BEGIN) and END in text:
        return text.removeprefix(BEGIN).partition(END)[0]
    words = " ".join(text.split())
    return words if len(words) <= QUOTED_CHARS else f"{words[:QUOTED_CHARS].rstrip()}…"

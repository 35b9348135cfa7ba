"""Fetches the model that a command is about to ask for, while the set-up still compiles.

    python -m vivace.models.prefetch edit FILE "INSTRUCTION"

Owns which model that is, and says on stdout how far it is, one `37%` a line. Imports what `download` does: no
package but msgspec. A failure is no error here: the command tries again, and says what is wrong.
"""

import sys
from itertools import pairwise

from vivace.config import Settings, load_settings
from vivace.errors import VivaceError
from vivace.models.catalog import CATALOG
from vivace.models.download import ensure


class Percent:
    """Progress as whole percents, each once."""

    def __init__(self) -> None:
        self._total_bytes = self._done_bytes = 0
        self._said = -1

    def begin(self, label: str, total_bytes: int) -> None:
        print(label, flush=True)
        self._total_bytes, self._done_bytes = total_bytes, 0

    def advance(self, size_bytes: int) -> None:
        self._done_bytes += size_bytes
        percent = 100 * self._done_bytes // self._total_bytes if self._total_bytes else 0
        if percent > self._said:
            self._said = percent
            print(f"{min(percent, 99)}%", flush=True)  # it is not done before its checksum is right

    def end(self) -> None:
        pass


def model_of(settings: Settings, command: list[str]) -> str:
    """Return the catalog's name of the model that `command` uses; empty if it uses none of these."""
    name = settings.model
    for word, following in pairwise([*command, ""]):
        if word == "--":
            break
        if word == "--model":
            name = following
        elif word.startswith("--model="):
            name = word.partition("=")[2]
    return name if name in [card.name for card in CATALOG] else ""


def main() -> int:
    try:
        settings = load_settings()
        if name := model_of(settings, sys.argv[1:]):
            ensure(settings, name, Percent())
    except VivaceError as error:
        print(error.message)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

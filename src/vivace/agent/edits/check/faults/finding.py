"""What is wrong in a text, in words that stay the same wherever it moves.

Owns the shape, and what counts as new: what was said of the old text nowhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    what: str  # such as "calls `load` without `path`"
    where: str = ""  # the function, or the file
    about: str = ""  # the name of what is used wrongly

    @property
    def said(self) -> str:
        """Say it in a sentence."""
        return f"`{self.where}` {self.what}." if self.where else f"It {self.what}."


def new_among(before: Iterable[Finding], after: Iterable[Finding]) -> list[Finding]:
    """Return those that say what nothing before did, each once."""
    known = {each.what for each in before}
    fresh = [each for each in after if each.what not in known]
    return list(dict.fromkeys(fresh))

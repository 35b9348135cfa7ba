"""Text and code as words that can be compared: identifiers in parts, without endings.

Owns the splitting for the index and the ranking. The stem is `find.evidence`'s, so that both count the same.
"""

import re
from collections import Counter
from functools import lru_cache

from vivace.agent.edits.find.evidence import WORD, stem

_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_LONGEST = 60  # characters of an identifier; longer ones are data
_ENGLISH_TEXT = """
a about after again all already also always an and another any are as at be because been before
behaviour being both but by can cannot could did different do does doing done each either else even
every expect expected following for from get gets give given gives had has have having here how
however i if in instead into is it its just know let like make makes me mean means more most must my
need needs never no nor not now of on once one only or other otherwise our out over own please said
same say see should since so some still such take than that the their them then there these they
thing this those though three through to too two under until up us use used uses using very want was
way we well were what when where whether which while who why will with without would you your add
change fix self cls def return returns true false none class function method
"""
_ENGLISH = frozenset(_ENGLISH_TEXT.split())  # with what is in all code: they say little


def word_counts(text: str) -> Counter[str]:
    """Return how often each word is in the text. `get_name` counts as itself, and as its parts."""
    counts: Counter[str] = Counter()
    for name, count in Counter(_IDENTIFIER.findall(text)).items():
        for word in parts_of(name):
            counts[word] += count
    return counts


@lru_cache(maxsize=200_000)
def parts_of(identifier: str) -> tuple[str, ...]:
    """Return the words of an identifier: `get_name` is `get`, `name` and `get_name`."""
    if len(identifier) > _LONGEST:
        return ()
    split = [word.lower() for word in WORD.findall(identifier) if len(word) > 2]
    found = dict.fromkeys(stem(word) for word in split if word not in _ENGLISH)
    whole = identifier.lower().strip("_")
    if identifier.startswith("__") and identifier.endswith("__"):
        found[f"__{whole}__"] = None
    elif len(split) > 1 or "_" in whole:
        found[whole] = None
    return tuple(found)

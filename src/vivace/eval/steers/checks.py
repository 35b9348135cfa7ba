"""Checks of an answer that need no judge: words, patterns, lengths, the language it is in.

Owns what each check means. An answer passes a list of checks if it passes all of them.
"""

import re
from collections.abc import Iterable

import msgspec

# The commonest words of each language that are rare in the others.
_COMMON = {
    "en": "the and of is was with that it to in this are for as on his her which you can by from be have",
    "fr": "le la les des une est et dans pour que qui avec sur du au aux ce cette sont il elle un en se par "
    "je vous nous à ne pas",
    "de": "der die das und ist ein eine nicht mit den von zu im auf war sich dem für es wird sind oder als "
    "ich sie wie wir",
    "es": "el la los las una es y en que con por para del era se su un al como más sus lo son esta está yo "
    "puedo",
    "it": "il lo la gli una è e di che con per nel della era un le dei si sono del alla suo da nella i posso "
    "non come",
    "pt": "o a os as uma é e de que com para em do da não um se no na dos das por mais são como ao seu eu "
    "vou você",
}
_WORDS = {language: frozenset(words.split()) for language, words in _COMMON.items()}
_LEAST_COMMON = 3  # words of a language that a text must have to be in it
_UPPER_SHARE = 0.9


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One condition. Exactly one field besides `at_least` is set."""

    words: tuple[str, ...] = ()  # different ones of these, in any case, at least `at_least`
    no_words: tuple[str, ...] = ()  # none of these, in any case
    matches: str = ""  # a regular expression that is found at least `at_least` times
    no_match: str = ""  # one that is not found
    language: str = ""  # a key of `_COMMON`
    max_words: int = 0
    uppercase: bool = False
    at_least: int = 1


def passes(checks: Iterable[Check], text: str) -> bool:
    return all(_passes(check, text) for check in checks)


def _passes(check: Check, text: str) -> bool:
    if check.words:
        return _count_words(check.words, text) >= check.at_least
    if check.no_words:
        return not _count_words(check.no_words, text)
    if check.matches:
        return len(re.findall(check.matches, text)) >= check.at_least
    if check.no_match:
        return not re.search(check.no_match, text)
    if check.language:
        return _language(text) == check.language
    if check.max_words:
        return 0 < len(text.split()) <= check.max_words
    assert check.uppercase
    letters = [letter for letter in text if letter.isalpha()]
    return sum(map(str.isupper, letters)) > _UPPER_SHARE * len(letters)


def _count_words(words: Iterable[str], text: str) -> int:
    return sum(bool(re.search(rf"(?i)(?<!\w){re.escape(word)}(?!\w)", text)) for word in words)


def _language(text: str) -> str:
    """Return the language whose common words the text has most of, or "" if it has too few."""
    found = re.findall(r"[^\W\d_]+", text.lower())
    counts = {language: sum(word in common for word in found) for language, common in _WORDS.items()}
    best = max(counts, key=lambda language: counts[language])
    return best if counts[best] >= _LEAST_COMMON else ""

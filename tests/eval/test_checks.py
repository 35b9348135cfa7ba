"""Checks that need no judge: each passes what it should, and nothing near it."""

import pytest

from vivace.eval.steers.checks import Check, passes


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (Check(words=("red", "blue"), at_least=2), "Red, then BLUE.", "Red, red, and bluebirds."),
        (Check(words=("C",)), "C.", "Certainly"),
        (Check(no_words=("city",)), "In the cities", "The City!"),
        (Check(matches=r"(?m)^\d\.", at_least=2), "1. a\n2. b", "1. a, 2. b"),
        (Check(no_match="def "), "define", "def f(): ..."),
        (Check(max_words=3), "one two three", "one two three four"),
        (Check(max_words=3), "one", ""),
        (Check(uppercase=True), "ALL OF IT, 1 TIME", "All of it"),
        (Check(uppercase=True), "YES", "123"),
    ],
)
def test_a_check_tells_good_from_bad(check: Check, good: str, bad: str) -> None:
    """Each kind of check passes one text and fails the other."""
    assert passes([check], good)
    assert not passes([check], bad)


TEXTS = {
    "en": "The keeper of the lighthouse was alone with the sea.",
    "fr": "Le gardien du phare était seul avec la mer et les étoiles.",
    "de": "Der Wärter war allein mit dem Meer und den Sternen.",
    "es": "El guardián del faro vivía solo con el mar y las estrellas.",
    "it": "Il guardiano del faro viveva da solo con il mare e le stelle della notte.",
    "pt": "O guarda do farol vivia só com o mar e as estrelas da noite.",
}


@pytest.mark.parametrize("language", TEXTS)
def test_a_language_is_known_by_its_common_words(language: str) -> None:
    """A sentence is in its own language, and in no other."""
    assert [each for each in TEXTS if passes([Check(language=each)], TEXTS[language])] == [language]


def test_too_little_text_is_in_no_language() -> None:
    """A word or two say nothing."""
    assert not any(passes([Check(language=each)], "OK, la.") for each in TEXTS)

"""The cases of `vivace eval steers`: a request, what is said in the middle of the answer, and how to check.

Owns the shapes and the reading of `cases.toml`. Does not own how a check is decided (`checks`).
"""

import tomllib
from importlib.resources import files
from typing import Literal

import msgspec

from vivace.eval.steers.checks import Check

Kind = Literal["language", "topic", "format", "add", "correct", "word"]
Form = Literal["steer", "interrupt", "resend"]
DEFAULT_TOKENS = 60


class Steer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: int  # output tokens of the answer that it interrupts
    text: str


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    kind: Kind
    ask: str
    steers: tuple[Steer, ...]
    obeyed: tuple[Check, ...]  # what the last answer must be; the first answer must not be
    kept: tuple[Check, ...] = ()  # what shows that the task was not lost, where the steer only changes it
    form: Form = "steer"  # `response.steer`; interrupt, then create; or interrupt, then all items again
    tokens: int = DEFAULT_TOKENS  # of the last answer
    held_out: bool = False  # not looked at while wordings were chosen


class _Cases(msgspec.Struct, forbid_unknown_fields=True):
    cases: tuple[Case, ...]


def read_cases() -> tuple[Case, ...]:
    text = (files("vivace.eval.steers") / "cases.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), _Cases).cases

"""Overload signatures after their implementation has changed."""

import pytest

from tests.agent.edits.find.outlines import source_of, units_of
from vivace.agent.edits.check.stubs import with_stubs
from vivace.agent.edits.find.languages import language_for

HEAD = """from typing import overload

class Store:
"""
STUBS = """    @overload
    def get(self, key: str) -> str: ...
    @overload
    def get(
        self,
        key: str,
        default: int,
    ) -> int | str: ...
"""
CODE = """    def get(self, key, default=None):
        return self.found.get(key, default)
"""
TEXT = HEAD + STUBS + CODE


def followed(after: str, before: str = TEXT, name: str = "a.py", unit: str = "get") -> tuple[str, list[str]]:
    source = source_of(name, before)
    found = next(each for each in units_of(name, before) if each.name == unit)
    assert found.stub_lines
    result = with_stubs(source, language_for(source.path), found, after.encode())
    return result.new_bytes.decode(), [each.qualified_name for each in result.left]


def test_a_keyword_is_given_to_every_signature() -> None:
    """A parameter behind `*` goes to the end of each signature, with `*` where there was none."""
    text, left = followed(TEXT.replace("default=None", "default=None, *, strict: bool = False"))
    assert left == []
    assert "def get(self, key: str, *, strict: bool = ...) -> str: ..." in text
    assert "        default: int,\n        *,\n        strict: bool = ...,\n    ) -> int | str: ..." in text


def test_a_parameter_stands_behind_the_same_one() -> None:
    """A signature that lacks the parameter before the new one is left, and said to be."""
    text, left = followed(TEXT.replace("default=None", "default=None, strict=False"))
    assert left == ["Store.get (overload at line 5)"]
    assert "def get(self, key: str) -> str: ..." in text
    assert "        default: int,\n        strict=...,\n    ) -> int | str: ..." in text


def test_what_would_not_parse_is_left() -> None:
    """A default before a parameter without one is no Python: that signature stays as it is."""
    text, left = followed(TEXT.replace("self, key, default", "self, key, strict=False, default"))
    assert left == ["Store.get (overload at line 7)"]
    assert "def get(self, key: str, strict=...) -> str: ..." in text


def test_a_parameter_that_went_goes_everywhere() -> None:
    """What the implementation lost is taken from the signatures that have it."""
    text, left = followed(TEXT.replace("self, key, default=None", "self, key"))
    assert left == []
    assert "default: int" not in text
    assert "def get(self, key: str) -> str: ..." in text


@pytest.mark.parametrize("written", ["key, fallback=None", "default, key=None"])
def test_names_that_changed_are_ambiguous(written: str) -> None:
    """A parameter that was renamed or moved leaves the signatures alone."""
    after = TEXT.replace("key, default=None", written)
    text, left = followed(after)
    assert text == after
    assert len(left) == 2


def test_a_body_alone_changes_no_signature() -> None:
    """Without new parameters not a byte of the signatures changes."""
    after = TEXT.replace("self.found", "self.kept")
    assert followed(after) == (after, [])


def test_line_ends_stay() -> None:
    """In a file with CRLF the new signature has CRLF too."""
    before = TEXT.replace("\n", "\r\n")
    text, _ = followed(before.replace("default=None", "default=None, *, strict=False"), before)
    assert "key: str, *, strict=...) -> str: ...\r\n" in text
    assert "\n" not in text.replace("\r\n", "")


def test_typescript_defaults_become_optional() -> None:
    """A default value has no place in a TypeScript signature: the parameter is optional there."""
    stubs = "function f(a: string): string;\nfunction f(a: number): number;\n"
    before = stubs + "function f(a: any): any {\n  return a;\n}\n"
    text, left = followed(before.replace("a: any", "a: any, deep: boolean = true"), before, "a.ts", "f")
    assert left == []
    assert text.count("deep?: boolean") == 2

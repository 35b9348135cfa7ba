"""What a format of calls is: how it is read, how a grammar holds a model to it, and how it begins.

Owns that type. The formats themselves are data in `known_formats`.
"""

from collections.abc import Collection, Sequence

import msgspec

from vivace.models.families.base import Tool
from vivace.models.families.calls.lark_grammar import Form
from vivace.models.families.calls.text_parser import Style


class CallFormat(msgspec.Struct, frozen=True):
    """How a template writes calls, and how a model does."""

    name: str
    style: Style  # how `TextParser` reads them
    form: Form | None  # how a grammar holds a model to them; None: it cannot
    opening: str = ""  # what `Family.answer` writes if a call is required; the form's `calls` go on behind it
    markers: tuple[str, ...] = ()  # words of the vocabulary that other text must not contain

    def held(self, silent: Collection[str]) -> Form | None:
        """Return the form for a model to which the markers in `silent` are control tokens.

        No grammar may have control tokens: where one begins a call, a call is held only if it is required.
        """
        marks = [mark for mark in silent if any(mark in opener for opener in self.style.openers)]
        return RequiredOnly(self.form) if self.form and marks else self.form


class RequiredOnly(msgspec.Struct, frozen=True):
    """A form whose calls are held only if they are required."""

    form: Form

    def holds(self, tool: Tool) -> bool:
        del tool
        return False

    def opener(self) -> str:
        return self.form.opener()

    def calls(self, tools: Sequence[Tool], *, is_parallel: bool) -> list[str]:
        return self.form.calls(tools, is_parallel=is_parallel)

    def free(self, tools: Sequence[Tool], *, is_parallel: bool) -> list[str]:
        return self.form.free(tools, is_parallel=is_parallel)

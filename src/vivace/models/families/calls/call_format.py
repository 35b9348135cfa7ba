"""What a format of calls is: how it is read, how a grammar holds a model to it, and how it begins.

Owns that type. The formats themselves are data in `known_formats`.
"""

import msgspec

from vivace.models.families.calls.lark_grammar import Form
from vivace.models.families.calls.text_parser import Style


class CallFormat(msgspec.Struct, frozen=True):
    """How a template writes calls, and how a model does."""

    name: str
    style: Style  # how `TextParser` reads them
    form: Form | None  # how a grammar holds a model to them; None: it cannot
    opening: str = ""  # what `Family.answer` writes if a call is required; the form's `calls` go on behind it
    markers: tuple[str, ...] = ()  # words of the vocabulary that other text must not contain

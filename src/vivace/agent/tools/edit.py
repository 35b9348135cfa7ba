"""The tool `edit`: one text of a file replaced by another, or a new file made.

Owns what is reported: where the text was found and how, or why it was not. Does not own the search
(`matching`), nor when files are written (`writes`).
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from vivace.agent.edits.apply.source import SourceFile, splice
from vivace.agent.permissions.decision import Need, WritePath
from vivace.agent.permissions.paths import Place, locate
from vivace.agent.tools.base import Arguments, FunctionTool, ToolContext, ToolResult, judged, named_path
from vivace.agent.tools.matching import Match, find, find_exact, reindented
from vivace.errors import EditRejected


class EditArguments(Arguments, frozen=True, kw_only=True):
    path: Annotated[str, Meta(description="relative to the workspace")]
    old_text: Annotated[str, Meta(description="the lines to replace, copied exactly; empty for a new file")]
    new_text: Annotated[str, Meta(description="what stands there instead")]
    replace_all: Annotated[bool, Meta(description="replace every exact occurrence")] = False


class Edit(FunctionTool[EditArguments]):
    name: ClassVar[str] = "edit"
    description: ClassVar[str] = (
        "Replace a text in a file by another one. The old text must stand in the file once; copy it exactly, "
        "with enough lines around it. With an empty old text a new file is made."
    )
    stages: ClassVar[bool] = True
    arguments = EditArguments

    def needs(self, arguments: EditArguments, context: ToolContext) -> list[Need]:
        return [WritePath(locate(context.root, arguments.path))]

    def title(self, arguments: EditArguments) -> str:
        return arguments.path

    def exact(self, arguments: EditArguments) -> str:
        every = " (every occurrence)" if arguments.replace_all else ""
        removed = arguments.old_text.split("\n") if arguments.old_text else []
        return "\n".join(
            [
                f"{named_path(arguments.path)}{every}",
                *(f"-{line}" for line in removed),
                *(f"+{line}" for line in arguments.new_text.split("\n")),
            ]
        )

    async def run(self, arguments: EditArguments, context: ToolContext, needs: Sequence[Need]) -> ToolResult:
        place = judged(needs)[arguments.path]
        await context.writes.files.refresh([place.path])
        if not arguments.old_text:
            return _create(arguments, place, context)
        if arguments.old_text == arguments.new_text:
            raise EditRejected("The old text and the new text are the same.", "Nothing was changed.")
        source = context.writes.read(place)
        replace = _replace_all if arguments.replace_all else _replace_one
        new_bytes, told = await asyncio.to_thread(replace, source, arguments)  # may take seconds
        if new_bytes == source.raw:
            raise EditRejected(f"{arguments.path} is so already.", "Nothing was changed.")
        context.writes.put(place, new_bytes)
        return ToolResult(f"{arguments.path}: {told}. It is replaced.", told)


def _create(arguments: EditArguments, place: Place, context: ToolContext) -> ToolResult:
    if context.writes.exists(place):
        raise EditRejected(
            f"{arguments.path} exists already, and the old text is empty.",
            "Read the file and give the text that shall be replaced.",
        )
    context.writes.put(place, arguments.new_text.encode("utf-8", "replace"))
    count = arguments.new_text.count("\n") + (not arguments.new_text.endswith("\n"))
    return ToolResult(f"{arguments.path} is made, with {count} lines.", f"new, {count} lines")


def _replace_one(source: SourceFile, arguments: EditArguments) -> tuple[bytes, str]:
    old = arguments.old_text.replace("\r\n", "\n")
    match = find(source.lines, old)
    return splice(
        source, match.first_line, match.last_line, _text_for(source, match, old, arguments)
    ), match.in_words


def _text_for(source: SourceFile, match: Match, old: str, arguments: EditArguments) -> str:
    """Return the lines that take the place of the match's lines."""
    new = arguments.new_text.replace("\r\n", "\n")
    if match.how == "exact":
        return _around(source, match, old, new)
    block = old.strip("\n").split("\n")
    first = next(index for index, line in enumerate(block) if line.strip())
    return reindented(new.strip("\n"), block[first], source.lines[match.first_line - 1 + first])


def _around(source: SourceFile, match: Match, old: str, new: str) -> str:
    """Return the new text between what stands before and behind the old one in its lines."""
    before = source.lines[match.first_line - 1][: match.column]
    behind = source.lines[match.last_line - 1][match.end_column :]
    if old.endswith("\n"):  # whole lines, which may also become none
        return before + new.removesuffix("\n")
    return f"{before}{new}{behind}" or "\n"


def _replace_all(source: SourceFile, arguments: EditArguments) -> tuple[bytes, str]:
    old, new = (text.replace("\r\n", "\n") for text in (arguments.old_text, arguments.new_text))
    places = find_exact(source.lines, old)
    if not places:
        raise EditRejected("The text is not in the file, exactly.", "replace_all needs an exact copy.")
    first, last = places[0].first_line, places[-1].last_line
    part = source.text_of(first, last)
    return splice(source, first, last, part.replace(old, new)), f"{len(places)} exact occurrences"

"""A conversation as its chat template writes it, one message after another, behind what stands already.

Owns where a log stands (`Place`) and what each further turn adds there. Never fails: what the template cannot
write is written in the frame of its messages. Text only, masked; `family` makes tokens of it.
"""

import contextlib
import json
from collections.abc import Sequence
from typing import Literal, NamedTuple

from vivace.models.families.base import Call, Entry, Message, Output, Thought, Tool
from vivace.models.families.calls.call_format import CallFormat
from vivace.models.families.calls.reasoning import Reasoning
from vivace.models.families.qwen25 import CHANGED, tools_told
from vivace.models.families.template import probes
from vivace.models.families.template.frames import NOTHING, Frames, Values, shared
from vivace.models.families.template.masking import Mask
from vivace.models.families.template.probes import Chat, Turn, answer_of, definition_of, said, turns_of
from vivace.models.families.template.sandbox import TemplateError, Written
from vivace.models.families.token_writer import TemplateText

Kind = Literal["start", "system", "awaiting", "user", "tool", "assistant"]
GAP = "\n\n"  # between instructions and a message, where both are one


class Place(NamedTuple):
    """What a log ends with."""

    kind: Kind = "start"  # awaiting: the user's first message has begun
    said: str = ""  # of an answer: its text so far, with what the template began it with
    stop: str = ""  # of an answer: the marker that ended it


class Piece(NamedTuple):
    text: str  # masked
    is_cut: bool = False  # the model's own words begin here: they are tokens apart from what stands before


class Script:
    """Writes turns behind a place."""

    def __init__(
        self,
        frames: Frames,
        mask: Mask,
        place: Place,
        *,
        values: Values = NOTHING,
        tags: Reasoning | None = None,
        call_format: CallFormat | None = None,
    ) -> None:
        self._frames, self.mask, self._values = frames, mask, values
        self._tags, self._format = tags, call_format
        self.place = place
        self.pieces: list[Piece] = []
        self._left = self._pending = ""  # of an ended answer: its last marker, and its whole end
        self._calls: list[tuple[str, str]] = []  # name and id, of the last answer
        self._is_call = False  # the answer here ends with a call

    # ---- the whole -------------------------------------------------------------------------------

    def write(self, entries: Sequence[Entry], tools: Sequence[Tool] = ()) -> None:
        turns = turns_of(entries)
        if self.place.kind == "start" and (turns or tools):
            first = turns[0] if turns and turns[0].kind == "system" and not turns[0].is_open else None
            self._head(self._words(first[0]) if first else None, tools)
            turns = turns[bool(first) :]
        elif tools:
            self._tell_changed(tools)
        for turn in turns:
            self._add(turn)
        is_answer = self.place.kind == "assistant" and bool(turns)
        if is_answer and not turns[-1].is_open and not self.place.stop:
            self._end_answer()

    def _add(self, turn: Turn) -> None:
        match turn.kind:
            case "user":
                self._user(self._words(turn[0]), is_open=turn.is_open)
            case "system":
                self._later_system(self._words(turn[0]))
            case "tool":
                self._results(turn)
            case _:
                self._answer(turn)

    def begin_answer(self, opening: str) -> None:
        """Write what begins an answer."""
        self._close_for("assistant")
        self._put(opening)
        self.pieces.append(Piece("", is_cut=True))

    def go_on(self, text: str) -> None:
        """Write more of the answer that the log ends inside of, before the model's own words."""
        if text:
            self.pieces.append(Piece(text))

    # ---- the beginning ---------------------------------------------------------------------------

    def _head(self, system: str | None, tools: Sequence[Tool]) -> None:
        frames = self._frames
        if tools and not frames.has_tools:
            system = f"{system}{GAP}{self._told(tools)}" if system is not None else self._told(tools)
            tools = ()
        shown = [definition_of(tool, self.mask.text, self.mask.schema) for tool in tools]
        kind: Kind = "awaiting" if frames.awaits and system is not None else "system"
        try:
            if system is not None and not frames.has_system:
                raise TemplateError("it has no place for instructions")
            head = frames.head(said("system", system) if system is not None else None, shown, self._values)
        except TemplateError:
            head, kind = self._plain_head(system), "awaiting" if system is not None else "system"
        self._put(head)
        self.place = Place(kind)

    def _plain_head(self, system: str | None) -> str:
        """Return the beginning with the instructions in front of the first message."""
        frames = self._frames
        with contextlib.suppress(TemplateError):
            bare = frames.head(None, (), self._values)
            return bare if system is None else f"{bare}{frames.user_open}{system}{GAP}"
        return "" if system is None else f"{frames.user_open}{system}{GAP}"

    def _told(self, tools: Sequence[Tool]) -> str:
        told = tools_told(tools)
        return "".join(piece if isinstance(piece, TemplateText) else self.mask.text(piece) for piece in told)

    def _tell_changed(self, tools: Sequence[Tool]) -> None:
        self._later_system(f"{CHANGED}{self._told(tools)}")

    def _later_system(self, text: str) -> None:
        frames = self._frames
        if frames.has_later_system and self.place.kind != "awaiting":
            with contextlib.suppress(TemplateError):
                added = frames.later_system(text, self._values)
                self._close_for("system")
                self._put(added)
                self.place = Place("system")
                return
        self._user(text, is_open=False)

    # ---- messages ---------------------------------------------------------------------------------

    def _user(self, text: str, *, is_open: bool) -> None:
        frames, is_awaited = self._frames, self.place.kind == "awaiting"
        framed = ("" if is_awaited else frames.user_open) + text + frames.user_close
        with contextlib.suppress(TemplateError):
            framed = self._framed_user(text, is_awaited=is_awaited)
        if not is_awaited:
            self._close_for("user")
        self._put(framed.removesuffix(frames.user_close) if is_open else framed)
        self.place = Place("awaiting" if is_open and frames.user_close else "user")

    def _framed_user(self, text: str, *, is_awaited: bool) -> str:
        frames = self._frames
        if not is_awaited:
            if self.place.kind == "tool":
                with contextlib.suppress(TemplateError):
                    return frames.behind("tool", [said("user", text)], self._values)
            return frames.behind("assistant", [said("user", text)], self._values)
        if not frames.has_system:
            whole = frames.render([said("user", probes.SYSTEM + GAP + text)], values=self._values)
            head = f"{frames.head(None, (), self._values)}{frames.user_open}{probes.SYSTEM}{GAP}"
        else:
            system = said("system", probes.SYSTEM)
            whole = frames.render([system, said("user", text)], values=self._values)
            head = frames.head(system, (), self._values)
        if not whole.startswith(head):
            raise TemplateError("it rewrites messages")
        return whole.removeprefix(head)

    def _answer(self, turn: Turn) -> None:
        if self.place.kind == "assistant" and not self.place.stop and not isinstance(turn[0], Thought):
            self._go_on(turn)
            return
        for part in self._singles(turn):
            self._whole_answer(part)

    def _singles(self, turn: Turn) -> list[Turn]:
        """Return an answer as the template can hold it: perhaps one for each call."""
        calls = [entry for entry in turn if isinstance(entry, Call)]
        if len(calls) < 2 or not (self._frames.has_calls and self._frames.has_one_call):
            return [turn]
        first = turn.index(calls[0])
        return [Turn(turn[: first + 1]), *(Turn([call]) for call in calls[1:])]

    def _whole_answer(self, turn: Turn) -> None:
        chat, calls = self._chat(turn)
        frames = self._frames
        text = self._framed_answer(chat, calls, turn)
        self._close_for("assistant")
        begun = self._opening_of(text)
        self._put(text[:begun])
        self.pieces.append(Piece(text[begun:], is_cut=True))
        self.place = Place("assistant", text.removeprefix(frames.begun))
        self._calls, self._is_call = [*self._calls, *calls] if frames.has_one_call else calls, bool(calls)

    def _go_on(self, turn: Turn) -> None:
        """Go on with the answer that the log ends inside of."""
        chat, calls = self._chat(turn)
        text = str(chat["content"])
        if calls and self._frames.has_calls:
            with contextlib.suppress(TemplateError):
                plain = self._frames.newest_answer("user", answer_of(text or probes.VALUE), self._values)
                whole = self._frames.answer(
                    "user", {**chat, "content": text or probes.VALUE}, calls, self._values
                )
                text += whole[len(shared(plain, whole)) :]
        self.pieces.append(Piece(text))
        self.place = Place("assistant", self.place.said + text)
        self._calls, self._is_call = calls or self._calls, bool(calls)

    def _framed_answer(self, chat: Chat, calls: Sequence[tuple[str, str]], turn: Turn) -> str:
        frames, kind = self._frames, self.place.kind
        words = str(chat["content"]) if frames.moves_words and "tool_calls" in chat else ""
        if words:
            chat = {**chat, "content": ""}
        is_newest = turn.is_open or any(isinstance(entry, Thought) for entry in turn)
        for each in (kind if kind in ("tool", "assistant") else "user", "user"):
            for write in (
                (frames.newest_answer, frames.answer) if is_newest else (frames.answer, frames.newest_answer)
            ):
                with contextlib.suppress(TemplateError):
                    if write == frames.answer or (calls and frames.call_close and frames.has_calls):
                        text = frames.answer(each, chat, calls, self._values)
                    else:
                        text = frames.newest_answer(each, chat, self._values)
                    begun = self._opening_of(text)
                    return text[:begun] + words + text[begun:]
        told = self._calls_told(turn) if "tool_calls" in chat else ""
        return f"{frames.begun}{words or chat['content'] or ''}{told}"

    def _opening_of(self, text: str) -> int:
        """Return how much of an answer's text is what it begins with: the model said the rest."""
        begins = [self._frames.begins.get(kind, "") for kind in ("user", "tool")]
        return max((len(each) for each in (*begins, self._frames.begun) if text.startswith(each)), default=0)

    def _chat(self, turn: Turn) -> tuple[Chat, list[tuple[str, str]]]:
        """Return an answer in the shape that templates read, and the calls in it."""
        frames, mask = self._frames, self.mask
        thought = "\n".join(mask.text(entry.text) for entry in turn if isinstance(entry, Thought))
        text = "".join(mask.text(entry.text) for entry in turn if isinstance(entry, Message))
        made = [entry for entry in turn if isinstance(entry, Call)]
        ids = [mask.text(frames.call_id(call.call_id, place)) for place, call in enumerate(made)]
        names = [(mask.text(call.name), id_) for call, id_ in zip(made, ids, strict=True)]
        if not frames.has_calls:
            told = self._calls_told(turn)
            return answer_of(
                f"{text}\n{told}" if text and told else text + told, thought, frames.thought_key
            ), names
        calls = [
            frames.call(name, self._arguments(call), id_)
            for call, (name, id_) in zip(made, names, strict=True)
        ]
        return answer_of(text, thought, frames.thought_key, calls), names

    def _calls_told(self, turn: Turn) -> str:
        """Return calls as text, for a template that has no place for them."""
        told = []
        for call in turn:
            if isinstance(call, Call):
                name = json.dumps(self.mask.text(call.name), ensure_ascii=False)
                arguments = probes.as_json(self._arguments(call))
                told.append(f'<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>')
        return "\n".join(told)

    def _arguments(self, call: Call) -> Written:
        given = probes.arguments_of(call)
        masked = Written(self.mask.value(given))
        masked.text = self.mask.text(given.text)
        return masked

    def _results(self, turn: Turn) -> None:
        frames, mask = self._frames, self.mask
        outputs = [entry for entry in turn if isinstance(entry, Output)]
        known = dict(enumerate(self._calls))
        names: list[tuple[str, str]] = []
        given: list[tuple[str, str, str]] = []
        for place, output in enumerate(outputs):
            name, id_ = known.get(place, (probes.TOOL_NAME, frames.call_id("", place)))
            name = mask.text(output.name) if output.name else name
            id_ = mask.text(frames.call_id(output.call_id, place)) if output.call_id else id_
            names.append((name, id_))
            given.append((mask.text(output.text), name, id_))
        results = frames.result_chats(given)
        try:
            if frames.has_one_call:
                each = zip(names, results, strict=True)
                added = "".join(frames.results([name], [result], self._values) for name, result in each)
            else:
                added = frames.results(names, results, self._values)
        except (TemplateError, ValueError):
            texts = "\n".join(
                f"<tool_response>\n{mask.text(each.text)}\n</tool_response>" for each in outputs
            )
            self._user(texts, is_open=False)
            return
        self._close_for("tool")
        self._put(added)
        self.place = Place("tool")

    # ---- what stands between ----------------------------------------------------------------------

    def _end_answer(self) -> None:
        """Write the end of an answer as the model does: up to the marker that ends it."""
        close = self._close(for_results=self._is_call)
        first = self._frames.markers.split(close)
        if len(first) > 1:
            self._put_raw(self._unfinished() + first[0] + first[1])
            self.place = Place("assistant", self.place.said, first[1])

    def _close(self, *, for_results: bool) -> str:
        return self._frames.call_close if for_results else self._frames.answer_close

    def _unfinished(self) -> str:
        """Return what ends reasoning, or a call, that was interrupted."""
        said = self.place.said
        if self._tags and self._tags.is_open(said):
            return self._tags.ended
        style = self._format.style if self._format else None
        if not style or not style.closers or self._is_call:
            return ""
        opened = max(said.rfind(opener) for opener in style.openers)
        if opened < 0 or any(said.find(closer, opened) >= 0 for closer in style.closers):
            return ""
        return f"\n{style.closers[0]}" if style.glue else style.closers[0]

    def _close_for(self, kind: Kind) -> None:
        """Close what the log ends with, before a message of this kind is put behind it."""
        self._left = self._pending = ""
        if self.place.kind == "awaiting":
            self._put_raw(self._frames.user_close)
        elif self.place.kind == "assistant":
            close = self._close(for_results=kind == "tool")
            if self.place.stop:
                self._left, self._pending = self.place.stop, close
            else:
                self._put_raw(self._unfinished() + close)

    def _put(self, text: str) -> None:
        """Write what follows a closed message. Of an ended answer the end stands already."""
        if self._left:
            text = _past(self._frames, self._pending + text, self._left, len(self._pending))
            self._left = self._pending = ""
        self._put_raw(text)

    def _put_raw(self, text: str) -> None:
        if text:
            self.pieces.append(Piece(text))

    def _words(self, entry: Entry) -> str:
        assert isinstance(entry, Message)
        return self.mask.text(entry.text)


def _past(frames: Frames, text: str, stop: str, close_size: int) -> str:
    """Return the text from behind the marker with which the answer ended, if the text begins with it."""
    size = 0
    parts = frames.markers.split(text)
    for place, part in enumerate(parts):
        size += len(part)
        if place % 2 and part == stop and (size <= close_size or place == 1):
            return text[size:]
    if close_size:  # another marker ended it: what is left of the closing are line breaks
        closing = frames.markers.split(text[:close_size])
        return (closing[-1] if len(closing) > 1 else closing[0]) + text[close_size:]
    return text

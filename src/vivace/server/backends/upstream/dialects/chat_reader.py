"""The answer of an upstream that speaks chat completions: its chunks become outcomes.

Owns what a chunk means, and which deltas of calls belong together. Servers differ most here: calls come in
deltas or whole, with indices, with the same index for all, or with none; reasoning has two names; usage
comes after the end, before it, or never. Nothing says that a call is whole but the next one, or the end.
"""

from typing import Any

import msgspec

from vivace.protocol.shapes.events import Usage
from vivace.server.backends.upstream.dialects.custom_input import InputText
from vivace.server.backends.upstream.dialects.reader import decode, items, mapping, string, usage_of
from vivace.server.backends.upstream.dialects.tools import Toolbox
from vivace.server.backends.upstream.errors import Problems
from vivace.server.backends.upstream.sequencer import MAX_CALLS, OutcomeSequencer, TooMuch

CUT = {"length": "length", "max_tokens": "length", "content_filter": "content_filter"}
FAILED = ("error", "abort", "network_error")
MAX_LOOKS = 16  # at whether a call is whole already; each costs its length


class _Call:
    def __init__(self, index: Any) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.number = 0  # 0: not begun yet, since its name has not come
        self.arguments: list[str] = []
        self.decoder: InputText | None = None
        self.is_done = False
        self.looks = 0

    @property
    def is_cut(self) -> bool:
        """Return whether it ends inside the text of a custom tool, which would pass for the whole text."""
        return self.decoder is not None and self.decoder.is_open

    @property
    def is_whole(self) -> bool:
        """Return whether all has come, as far as can be seen."""
        self.looks += 1
        if self.looks > MAX_LOOKS:
            return False
        try:
            return isinstance(decode("".join(self.arguments)), dict)
        except ValueError:
            return False


class ChatReader:
    def __init__(self, sequencer: OutcomeSequencer, toolbox: Toolbox, problems: Problems) -> None:
        self.reason = ""
        self.is_over = False
        self.has_said_why = False
        self.usage: Usage | None = None
        self._sequencer = sequencer
        self._toolbox = toolbox
        self._problems = problems
        self._calls: list[_Call] = []

    def read_event(self, name: str, data: str) -> None:
        if data.strip() == "[DONE]":
            self.is_over = True
            self._finish("stop")
            return
        try:
            chunk = mapping(decode(data))
        except ValueError:
            raise self._problems.broken("sent an event that is no JSON.") from None
        if chunk.get("error") or name == "error":
            raise self._problems.reported(chunk.get("error") or chunk)
        self._read_chunk(chunk)

    def read_whole(self, body: bytes) -> None:
        try:
            answer = mapping(decode(body))
        except ValueError:
            raise self._problems.broken("answered with something that is no JSON.") from None
        if answer.get("error"):
            raise self._problems.reported(answer["error"])
        self.has_said_why = True  # it came whole
        self._read_chunk(answer)
        self.is_over = True
        if not self.reason and items(answer.get("choices")):
            self._finish("stop")

    def end(self) -> None:
        if not self.reason:
            raise self._problems.broken("stopped before the end of its answer.")

    def _read_chunk(self, chunk: dict[str, Any]) -> None:
        self.usage = usage_of(chunk.get("usage")) or self.usage
        for choice in map(mapping, items(chunk.get("choices"))):
            if choice.get("index") or self.reason:
                continue  # one answer was asked for, and it ends once
            said = mapping(choice.get("delta")) or mapping(choice.get("message"))
            self._read_delta(said, items(mapping(choice.get("logprobs")).get("content")))
            if finish := string(choice.get("finish_reason")):
                self.has_said_why = True
                if finish in FAILED:
                    raise self._problems.reported(choice.get("error") or "Its answer ended with an error.")
                self._finish(CUT.get(finish, "stop"))

    def _read_delta(self, said: dict[str, Any], logprobs: list[Any]) -> None:
        self._say("", string(said.get("reasoning_content")) or string(said.get("reasoning")), [])
        content = said.get("content")
        for part in map(mapping, items(content)):  # some send parts
            self._say(string(part.get("text")), _text_of(part.get("thinking")), [])
        self._say(string(content) or string(said.get("refusal")), "", logprobs)
        for place, delta in enumerate(map(mapping, items(said.get("tool_calls")))):
            self._call(delta, place)

    def _say(self, text: str, reasoning: str, logprobs: list[Any]) -> None:
        if (text or reasoning) and not self._sequencer.is_crowded:
            self._close_last()
        self._sequencer.reasoning(reasoning)
        self._sequencer.text(text, logprobs)

    def _call(self, delta: dict[str, Any], place: int) -> None:
        function = mapping(delta.get("function"))
        name, call_id = string(function.get("name")), string(delta.get("id"))
        call = self._found(delta.get("index"), name, call_id, place)
        if call is None:
            if not self._sequencer.is_crowded:
                self._close_last()
            if len(self._calls) >= MAX_CALLS:
                raise TooMuch
            call = _Call(delta.get("index"))
            self._calls.append(call)
        call.id = call.id or call_id
        call.name = call.name or name
        self._grow(call, _arguments(function.get("arguments")))

    def _found(self, index: Any, name: str, call_id: str, place: int) -> _Call | None:
        """Return the call that this delta belongs to."""
        if not isinstance(index, int):  # then calls come whole, or one after the other
            known = [call for call in self._calls if call_id and call.id == call_id]
            last = self._calls[-1] if self._calls and not name and not place else None
            return known[-1] if known else last
        known = [call for call in self._calls if call.index == index]
        if not known:
            return None
        call = known[-1]
        if name and call.name:  # one index for all calls: a name that comes again is another call's
            is_other = call_id != call.id if call_id and call.id else call.is_done or call.is_whole
            return None if is_other else call
        return call

    def _grow(self, call: _Call, arguments: str) -> None:
        call.arguments.append(arguments)
        if call.is_done or not call.name:
            self._sequencer.count(arguments)
            return
        if not call.number:
            begun = self._toolbox.begun(call.name, call.id, is_custom=False)
            call.number = self._sequencer.begin_call(begun)
            call.decoder = InputText() if begun.is_custom else None
            arguments = "".join(call.arguments)
        self._sequencer.extend_call(call.number, call.decoder.feed(arguments) if call.decoder else arguments)

    def _close_last(self) -> None:
        """End the open call if it looks whole, since something else follows."""
        if (
            self._calls
            and not self._calls[-1].is_done
            and self._calls[-1].number
            and self._calls[-1].is_whole
        ):
            self._done(self._calls[-1])

    def _done(self, call: _Call) -> None:
        if call.is_done or not call.number:
            return
        call.is_done = True
        if call.decoder:
            self._sequencer.extend_call(call.number, call.decoder.finish())
        elif not any(call.arguments):
            self._sequencer.extend_call(call.number, "{}")  # nobody can parse nothing
        self._sequencer.end_call(call.number)

    def _finish(self, reason: str) -> None:
        if self.reason:
            return
        self.reason = reason
        is_end = reason == "stop" and self.has_said_why
        for call in self._calls:
            call.looks = 0
            if (is_end and not call.is_cut) or call.is_whole:
                self._done(call)


def _arguments(given: Any) -> str:
    """Return arguments as a string; some servers send the object itself."""
    if given is None or isinstance(given, str):
        return given or ""
    return msgspec.json.encode(given).decode()


def _text_of(parts: Any) -> str:
    if isinstance(parts, str):
        return parts
    return "".join(string(part.get("text")) for part in map(mapping, items(parts)))

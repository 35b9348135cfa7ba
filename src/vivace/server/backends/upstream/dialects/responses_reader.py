"""The answer of an upstream that speaks the Responses API: its events become outcomes.

Owns what each event means, and that nothing is sent twice: what came in deltas is not sent again when its
item is done. Servers that send no deltas, or no items, or only the whole response, are understood too.
"""

from typing import Any

from vivace.protocol.shapes.events import Usage
from vivace.server.backends.upstream.dialects.custom_input import InputText
from vivace.server.backends.upstream.dialects.reader import decode, items, mapping, string, usage_of
from vivace.server.backends.upstream.dialects.tools import Toolbox
from vivace.server.backends.upstream.errors import Problems
from vivace.server.backends.upstream.sequencer import OutcomeSequencer

REASONS = {"max_output_tokens": "length", "max_tokens": "length", "content_filter": "content_filter"}
CALLS = ("function_call", "custom_tool_call")
FULL_TEXT = {"function_call": "arguments", "custom_tool_call": "input"}


class _Call:
    def __init__(self, number: int, decoder: InputText | None) -> None:
        self.number = number
        self.decoder = decoder  # of a custom tool that was called like a function
        self.sent: list[str] = []
        self.is_done = False


class ResponsesReader:
    def __init__(self, sequencer: OutcomeSequencer, toolbox: Toolbox, problems: Problems) -> None:
        self.reason = ""
        self.has_said_why = True  # its last event is the reason
        self.is_over = False
        self.usage: Usage | None = None
        self._sequencer = sequencer
        self._toolbox = toolbox
        self._problems = problems
        self._calls: dict[int | str, _Call] = {}
        self._streamed: set[str] = set()  # kinds of items that come in deltas
        self._sent_kinds: set[str] = set()  # kinds of items of which anything was sent
        self._reasoning_kind = ""  # reasoning or its summary: whichever comes first is sent on

    def read_event(self, name: str, data: str) -> None:
        if data.strip() == "[DONE]":  # no part of this API, but some send it
            return
        try:
            event = mapping(decode(data))
        except ValueError:
            raise self._problems.broken("sent an event that is no JSON.") from None
        self._read_event(string(event.get("type")) or name, event)

    def read_whole(self, body: bytes) -> None:
        try:
            response = mapping(decode(body))
        except ValueError:
            raise self._problems.broken("answered with something that is no JSON.") from None
        if response.get("error"):
            raise self._problems.reported(response["error"])
        self._conclude(string(response.get("status")) or "completed", response)

    def end(self) -> None:
        if not self.reason:
            raise self._problems.broken("stopped before the end of its answer.")

    def _read_event(self, kind: str, event: dict[str, Any]) -> None:
        match kind:
            case "response.output_text.delta" | "response.refusal.delta":
                self._streamed.add("message")
                self._text(string(event.get("delta")), items(event.get("logprobs")))
            case "response.reasoning_text.delta" | "response.reasoning.delta":
                self._continue_reasoning("text", event)
            case "response.reasoning_summary_text.delta" | "response.reasoning_summary.delta":
                self._continue_reasoning("summary", event)
            case "response.reasoning_summary_part.added":
                if self._reasoning_kind == "summary" and event.get("summary_index"):
                    self._sequencer.reasoning("\n\n")
            case "response.output_item.added":
                self._begin(event)
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                if call := self._calls.get(_key(event)):
                    self._extend_call(call, string(event.get("delta")))
            case "response.output_item.done":
                self._finish_item(event)
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                self._conclude(kind.removeprefix("response."), mapping(event.get("response")))
            case "error":
                raise self._problems.reported(event.get("error") or event)

    def _text(self, delta: str, logprobs: list[Any]) -> None:
        self._sent_kinds.add("message")
        self._sequencer.text(delta, logprobs)

    def _reasoning(self, delta: str) -> None:
        self._sent_kinds.add("reasoning")
        self._sequencer.reasoning(delta)

    def _continue_reasoning(self, kind: str, event: dict[str, Any]) -> None:
        self._streamed.add("reasoning")
        self._reasoning_kind = self._reasoning_kind or kind
        if kind == self._reasoning_kind:
            self._reasoning(string(event.get("delta")))

    def _begin(self, event: dict[str, Any]) -> _Call | None:
        """Begin a call. Other items begin with their first delta."""
        item, key = mapping(event.get("item")), _key(event)
        kind, name = string(item.get("type")), string(item.get("name"))
        if kind not in CALLS or not name:
            return None
        if (before := self._calls.get(key)) and not before.is_done:
            self._done(before)
        begun = self._toolbox.begun(name, string(item.get("call_id")), is_custom=kind == "custom_tool_call")
        is_wrapped = begun.is_custom and kind == "function_call"
        self._sent_kinds.update(CALLS)
        self._calls[key] = call = _Call(
            self._sequencer.begin_call(begun), InputText() if is_wrapped else None
        )
        return call

    def _extend_call(self, call: _Call, delta: str) -> None:
        call.sent.append(delta)
        self._sequencer.extend_call(call.number, call.decoder.feed(delta) if call.decoder else delta)

    def _done(self, call: _Call) -> None:
        if call.decoder:
            self._sequencer.extend_call(call.number, call.decoder.finish())
        call.is_done = True
        self._sequencer.end_call(call.number)

    def _finish_item(self, event: dict[str, Any]) -> None:
        item = mapping(event.get("item"))
        kind = string(item.get("type"))
        if kind in CALLS:
            call = self._calls.get(_key(event))
            if call is None or call.is_done:
                call = self._begin(event)
            if call and item.get("status") != "incomplete":
                self._complete(call, kind, item)
        elif kind == "message" and kind not in self._streamed:
            self._text(_text_of(item.get("content")), [])
        elif kind == "reasoning" and kind not in self._streamed:
            self._reasoning(_text_of(item.get("content")) or _text_of(item.get("summary")))

    def _complete(self, call: _Call, kind: str, item: dict[str, Any]) -> None:
        sent, whole = "".join(call.sent), string(item.get(FULL_TEXT[kind]))
        if whole.startswith(sent):
            self._extend_call(call, whole[len(sent) :])
        if kind == "function_call" and not (sent or whole) and not call.decoder:
            self._extend_call(call, "{}")  # nobody can parse nothing
        self._done(call)

    def _conclude(self, status: str, response: dict[str, Any]) -> None:
        self.is_over = True
        self.usage = usage_of(response.get("usage"))
        if status in ("failed", "cancelled"):
            raise self._problems.reported(response.get("error") or f"The answer was {status}.")
        self._send_missing(items(response.get("output")))
        if status == "incomplete":
            why = string(mapping(response.get("incomplete_details")).get("reason"))
            if why not in REASONS:
                raise self._problems.broken(f"ended its answer early: {why[:40] or 'it does not say why'}.")
            self.reason = REASONS[why]
            return
        for call in self._calls.values():
            if not call.is_done:
                self._done(call)
        self.reason = "stop"

    def _send_missing(self, output: list[Any]) -> None:
        """Send the kinds of items that no event brought; reasoning only if nothing was sent before."""
        sent = self._sent_kinds | ({"reasoning"} if self._sent_kinds else set())
        for index, item in enumerate(output):
            if mapping(item).get("type") not in sent:
                self._finish_item({"item": item, "output_index": index})


def _key(event: dict[str, Any]) -> int | str:
    """Return what ties the events of an item together: not every server keeps its ids, or counts."""
    index = event.get("output_index")
    if isinstance(index, int):
        return index
    return string(event.get("item_id")) or string(mapping(event.get("item")).get("id"))


def _text_of(parts: Any) -> str:
    if isinstance(parts, str):
        return parts
    return "".join(
        string(part.get("text")) or string(part.get("refusal")) for part in map(mapping, items(parts))
    )

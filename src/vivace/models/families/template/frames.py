"""How a chat template writes messages one after another, learned by asking it.

Owns the texts between messages, and what each further message adds behind one of a kind: the difference of
two renderings. Knows text only, no tokens. What it learned is checked in `judging`.
"""

import contextlib
from collections.abc import Mapping, Sequence
from os.path import commonprefix
from typing import Any

from vivace.models.families.template import probes
from vivace.models.families.template.masking import Markers
from vivace.models.families.template.probes import Chat, answer_of, call_of, result_of, said
from vivace.models.families.template.sandbox import Template, TemplateError

# Options of templates that keep what was written: a log only grows.
KEEPS = {
    "keep_past_thinking": True,
    "clear_thinking": False,
    "drop_thinking": False,
    "truncate_history_thinking": False,
    "preserve_thinking": True,
    "preserved_thinking": True,
    "tools_in_user_message": False,
    "interleaved_thinking": True,
}
THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking", "thought")
Values = Mapping[str, Any]


class Frames:
    """What a template writes around texts."""

    def __init__(self, template: Template, markers: Markers, *, bos: str, eos: str) -> None:
        self.template, self.markers = template, markers
        self._always: dict[str, Any] = {"bos_token": bos, "eos_token": eos}
        self._always |= {key: value for key, value in KEEPS.items() if key in template.variables}
        self._trailer = ""  # what the template writes behind a last message that nobody answers
        self._no_tools = self._without_tools()
        self._learn_messages()
        self._learn_system()
        self._learn_calls()
        self._learn_tools()
        self._learn_thoughts()
        self._learn_begun()

    # ---- asking ----------------------------------------------------------------------------------

    def render(
        self, chats: Sequence[Chat], tools: Sequence[Any] = (), *, asks: bool = False, values: Values = {}
    ) -> str:
        given = {"tools": list(tools)} if tools else self._no_tools
        text = self.template.render(
            messages=list(chats), add_generation_prompt=asks, **given, **self._always, **values
        )
        return text if asks else text.removesuffix(self._trailer)

    def _without_tools(self) -> dict[str, Any]:
        """Return how the template is told that there are no tools: some do not know `None`."""
        chats = [said("user", probes.ASKED)]
        for given in ({"tools": None}, {"tools": []}):
            with contextlib.suppress(TemplateError):
                self.template.render(messages=chats, **given, **self._always)
                return given
        return {}

    def behind(self, kind: str, chats: Sequence[Chat], values: Values = {}, *, asks: bool = False) -> str:
        """Return what these messages add behind a closed message of that kind."""
        context, last, close = self._contexts[kind]
        text = self.render([*context, *chats], asks=asks, values=values)
        return _behind(text, last, close)

    def head(self, system: Chat | None, tools: Sequence[Any], values: Values = {}) -> str:
        """Return the beginning of a log: up to the first user's message, or its text if it `awaits` it."""
        first = [system] if system else []
        text = self.render([*first, said("user", probes.ASKED)], tools, values=values)
        before, found, _ = text.partition(probes.ASKED)
        if not found:
            raise TemplateError("it leaves out a message")
        return before.removesuffix(self.user_open) if before.endswith(self.user_open) else before

    # ---- learning --------------------------------------------------------------------------------

    def _learn_messages(self) -> None:
        asked, answered = said("user", probes.ASKED), answer_of(probes.ANSWERED)
        first, _, once = _parted(self.render([asked]), probes.ASKED)
        _, _, begun = _parted(self.render([asked], asks=True), probes.ASKED)
        self.user_close = once if begun.startswith(once) else self._common(once, begun)
        self._trailer = once.removeprefix(self.user_close)
        text = self.render([asked, answered, said("user", probes.ASKED_MORE)])
        parts = _parts(text, probes.ASKED, probes.ANSWERED, probes.ASKED_MORE)
        if not parts[1].startswith(self.user_close) or parts[3] != self.user_close:
            raise TemplateError("it ends a message in more than one way")
        alone = _parts(self.render([asked, answered]), probes.ASKED, probes.ANSWERED)
        between, last = parts[2], alone[2]
        if last and between.startswith(last):
            self.answer_close, self.user_open = last, between.removeprefix(last)
        else:
            size = len(commonprefix([first[::-1], between[::-1]]))
            size -= size and len(self._half_marker(between, len(between) - size))
            self.answer_close, self.user_open = between[: len(between) - size], between[len(between) - size :]
        self.last_close = last
        self._contexts: dict[str, tuple[list[Chat], str, str]] = {
            "user": ([asked], probes.ASKED, self.user_close),
            "assistant": ([asked, answered], probes.ANSWERED, self.answer_close),
        }
        self.begins: dict[str, str] = {"user": self.opening("user", {})}
        self._histories = [parts[1].removeprefix(self.user_close), alone[1].removeprefix(self.user_close)]
        if not self.markers.split(self.user_close + self.begins["user"])[1:]:
            raise TemplateError("it frames messages by plain text, which a user could write, too")
        if not self.markers.split(self.user_open)[1:] and not self.markers.split(self.answer_close)[1:]:
            raise TemplateError("it frames messages by plain text, which a user could write, too")

    def _common(self, one: str, other: str) -> str:
        """Return what both begin with, in whole markers."""
        found = commonprefix([one, other])
        halves = [self._half_before(text, len(found)) for text in (one, other)]
        return found[: len(found) - max(map(len, halves))]

    def _half_marker(self, text: str, at: int) -> str:
        """Return what of a marker that `at` cuts in two stands behind it."""
        size = 0
        for piece in self.markers.split(text):
            if size < at < size + len(piece) and piece in self.markers.names:
                return text[at : size + len(piece)]
            size += len(piece)
        return ""

    def opening(self, kind: str, values: Values) -> str:
        """Return what begins an answer behind a message of that kind."""
        context, *_ = self._contexts[kind]
        without, begun = self.render(context, values=values), self.render(context, asks=True, values=values)
        if begun.startswith(without):
            return begun[len(without) :]
        _, last, close = self._contexts[kind]
        return _behind(begun, last, close)

    def _learn_system(self) -> None:
        system = said("system", probes.SYSTEM)
        self.has_system = self.awaits = self.has_later_system = False
        self.system_role = "system"
        with contextlib.suppress(TemplateError):
            text = self.render([system, said("user", probes.ASKED)])
            before, _, after = text.partition(probes.ASKED)
            if probes.SYSTEM in before and after == self.user_close:
                self.has_system = True
                self.awaits = not before.endswith(self.user_open)
        with contextlib.suppress(TemplateError):
            more = said("user", probes.ASKED_MORE)
            text = self.behind("assistant", [system, more])
            end = f"{self.user_open}{probes.ASKED_MORE}{self.user_close}"
            self.has_later_system = probes.SYSTEM in text and text.endswith(end)

    def later_system(self, text: str, values: Values) -> str:
        """Return a system message in the middle of a conversation."""
        chats = [said("system", text), said("user", probes.ASKED_MORE)]
        end = f"{self.user_open}{probes.ASKED_MORE}{self.user_close}"
        found = self.behind("assistant", chats, values)
        if not found.endswith(end):
            raise TemplateError("it moves a message")
        return found.removesuffix(end)

    def _learn_calls(self) -> None:
        self.has_calls = False
        self.is_argument_text = False
        self.empty_text: str = ""
        self.id_form = "free"
        for self.id_form in ("free", "nine"):
            for self.is_argument_text in (False, True):
                with contextlib.suppress(TemplateError):
                    if self._try_calls():
                        self.has_calls = True
                        return

    def probe_call(self) -> Chat:
        arguments = {probes.KEY: probes.VALUE}
        return call_of(probes.TOOL_NAME, arguments, self.call_id("", 0, probes.TOOL_NAME), is_text=self.is_argument_text)

    def call_id(self, given: str, place: int, name: str) -> str:
        """Return a call's id as the template wants it."""
        if "functions." in self.template.source and ":" in self.template.source and "tool_call_id" in self.template.source:
            return f"functions.{name}:{place}"
        if self.id_form == "free":
            return given or f"call{place}"
        import hashlib

        return hashlib.sha256((given or str(place)).encode()).hexdigest()[:9]

    def _try_calls(self) -> bool:
        calling = answer_of("", calls=[self.probe_call()])
        identity = self.probe_call()["id"]
        result = result_of(probes.RESULT, probes.TOOL_NAME, identity)
        called = self.render([said("user", probes.ASKED), calling])
        text = self.render([said("user", probes.ASKED), calling, result])
        call_text = called.partition(probes.ASKED)[2]
        is_shown = all(word in call_text for word in (probes.TOOL_NAME, probes.KEY, probes.VALUE))
        if not is_shown or probes.RESULT not in text or f"{{'{probes.KEY}'" in call_text:
            return False
        if f"\\\"{probes.KEY}" in call_text:  # JSON in a JSON string
            return False
        tail, answered = call_text.rpartition(probes.VALUE)[2], text.rpartition(probes.RESULT)[0]
        answered = answered.partition(probes.VALUE)[2]
        is_closed = bool(self.answer_close) and tail.endswith(self.answer_close) and answered.startswith(tail)
        self.call_close = self.answer_close if is_closed else ""
        self.call_end = tail.removesuffix(self.call_close) if answered.startswith(tail) else self._common(tail, answered)
        close = text.partition(probes.RESULT)[2]
        self._contexts["tool"] = ([said("user", probes.ASKED), calling, result], probes.RESULT, close)
        self.tool_open = answered.removeprefix(self.call_end).removeprefix(self.call_close)
        self.tool_close = close
        self.begins["tool"] = self.opening("tool", {})
        return True

    def results(self, calls: Sequence[Chat], results: Sequence[Chat], values: Values) -> str:
        """Return what the results of these probe calls add behind the closed answer that made them."""
        chats = [said("user", probes.ASKED), answer_of("", calls=calls), *results]
        text = self.render(chats, values=values)
        parts = text.split(probes.VALUE, len(calls))
        if len(parts) <= len(calls) or not parts[-1].startswith(self.call_end + self.call_close):
            raise TemplateError("it moves a message")
        return parts[-1].removeprefix(self.call_end + self.call_close)

    def _half_before(self, text: str, at: int) -> str:
        half = self._half_marker(text, at)
        if not half:
            return ""
        size = 0
        for piece in self.markers.split(text):
            if size < at < size + len(piece):
                return text[size:at]
            size += len(piece)
        return ""

    def _learn_tools(self) -> None:
        self.has_tools = False
        tool = probes.definition_of(probes.TOOL, str, lambda schema: schema)
        with contextlib.suppress(TemplateError):
            first = [said("system", probes.SYSTEM)] if self.has_system else []
            text = self.render([*first, said("user", probes.ASKED)], [tool])
            before, _, after = text.partition(probes.ASKED)
            self.has_tools = probes.TOOL_NAME in before and after == self.user_close

    def _learn_thoughts(self) -> None:
        self.thought_key = self.think_begin = self.think_end = ""
        for key in THOUGHT_KEYS:
            if key not in self.template.source:
                continue
            with contextlib.suppress(TemplateError):
                chat = answer_of(probes.ANSWERED, probes.THOUGHT, key)
                text = self.behind("user", [chat])
                before, _, rest = text.partition(probes.THOUGHT)
                end, found, _ = rest.partition(probes.ANSWERED)
                if found and probes.THOUGHT in text:
                    self.thought_key, self.think_end, self._before_thought = key, end, before
                    self._histories.append(before)
                    return

    def _learn_begun(self) -> None:
        """Learn what every answer begins with, and what of it begins reasoning."""
        more = [answer_of(probes.ANSWERED), said("user", probes.ASKED_MORE), answer_of(probes.ANSWERED_MORE)]
        with contextlib.suppress(TemplateError):
            text = self.behind("user", more).partition(probes.ANSWERED)[2].partition(probes.ASKED_MORE)[2]
            self._histories.append(text.partition(probes.ANSWERED_MORE)[0].removeprefix(self.user_close))
        openings = [self.begins["user"], *self._histories]
        for values in ({"enable_thinking": False}, {"enable_thinking": True}, {"thinking": True}):
            with contextlib.suppress(TemplateError):
                if set(values) <= self.template.variables:
                    openings.append(self.opening("user", values))
        self.begun = openings[0]
        for opening in openings:
            self.begun = self._common(self.begun, opening)
        if self.thought_key:
            self.think_begin = self._before_thought.removeprefix(self.begun)


def _behind(text: str, last: str, close: str) -> str:
    _, found, rest = text.partition(last)
    if not found or not rest.startswith(close):
        raise TemplateError("it rewrites messages")
    return rest[len(close) :]


def _parted(text: str, word: str) -> tuple[str, str, str]:
    before, found, after = text.partition(word)
    if not found:
        raise TemplateError("it leaves out a message")
    return before, found, after


def _parts(text: str, *words: str) -> list[str]:
    """Return what stands before, between and behind these words, each there once and in this order."""
    parts: list[str] = []
    for word in words:
        before, found, text = text.partition(word)
        if not found:
            raise TemplateError("it leaves out a message")
        parts.append(before)
    return [*parts, text]

"""How a chat template writes messages one after another, learned by asking it.

Owns the texts between messages, and what each further message adds behind one of a kind: the difference of
two renderings. Knows text only, no tokens. What it learned is checked in `judging`.
"""

import contextlib
import copy
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from vivace.models.families.calls.reasoning import KNOWN
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
MOST_KEPT, MOST_KEPT_CHARS = 512, 4096  # renderings, and what they are of
THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking", "thought")
Values = Mapping[str, Any]
NOTHING: Values = {}


class Frames:
    """What a template writes around texts."""

    def __init__(self, template: Template, markers: Markers, *, bos: str, eos: str) -> None:
        self.template, self.markers = template, markers
        self.always: dict[str, Any] = {"bos_token": bos, "eos_token": eos}
        self.always |= {key: value for key, value in KEEPS.items() if key in template.variables}
        self._rendered: dict[str, str] = {}  # what was asked before: the same contexts come again
        self._trailer = ""  # what the template writes behind a last message that nobody answers
        self.no_tools = self._without_tools()
        self._learn_messages()
        self._learn_system()
        self._learn_calls()
        self._learn_tools()
        self._learn_thoughts()
        self._learn_begun()

    # ---- asking ----------------------------------------------------------------------------------

    def render(
        self,
        chats: Sequence[Chat],
        tools: Sequence[Any] = (),
        *,
        asks: bool = False,
        values: Values = NOTHING,
    ) -> str:
        key = repr((chats, tools, asks, values))
        if (text := self._rendered.get(key)) is None:
            given = dict[str, Any]({"tools": list(tools)} if tools else self.no_tools)
            text = self.template.render(
                messages=copy.deepcopy(list(chats)),
                add_generation_prompt=asks,
                **given,
                **self.always,
                **values,
            )
            if len(key) < MOST_KEPT_CHARS and len(self._rendered) < MOST_KEPT:
                self._rendered[key] = text
        return text if asks else text.removesuffix(self._trailer)

    def _without_tools(self) -> dict[str, Any]:
        """Return how the template is told that there are no tools: some do not know `None`."""
        chats = [said("user", probes.ASKED)]
        ways: tuple[dict[str, Any], ...] = ({"tools": None}, {"tools": []})
        for given in ways:
            with contextlib.suppress(TemplateError):
                self.template.render(messages=chats, **given, **self.always)
                return given
        return {}

    def behind(self, kind: str, chats: Sequence[Chat], values: Values = NOTHING) -> str:
        """Return what these messages add behind a closed message of that kind."""
        context, last, close = self._contexts[kind]
        return _behind(self.render([*context, *chats], values=values), last, close)

    def head(self, system: Chat | None, tools: Sequence[Any], values: Values = NOTHING) -> str:
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
        if once == begun:
            self._refuse_always_begun(asked, answered, once)
        text = self.render([asked, answered, said("user", probes.ASKED_MORE)])
        parts = _parts(text, probes.ASKED, probes.ANSWERED, probes.ASKED_MORE)
        if not parts[1].startswith(self.user_close) or parts[3] != self.user_close:
            raise TemplateError("it ends a message in more than one way")
        alone = _parts(self.render([asked, answered]), probes.ASKED, probes.ANSWERED)
        between, last = parts[2], alone[2]
        if last and between.startswith(last):
            self.answer_close, self.user_open = last, between.removeprefix(last)
        else:
            size = len(shared(first[::-1], between[::-1]))
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

    def _refuse_always_begun(self, asked: Chat, answered: Chat, once: str) -> None:
        """Refuse a template that begins an answer where none is asked for: it leaves no place for one."""
        between = _parts(self.render([asked, answered]), probes.ASKED, probes.ANSWERED)[1]
        if not between.startswith(once):
            raise TemplateError("it begins an answer even where none is asked for")

    def _common(self, one: str, other: str) -> str:
        """Return what both begin with, in whole markers."""
        found = shared(one, other)
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
        """Learn how calls and their results are written; as plain text where the template knows neither."""
        ways = [
            ("free", False, "tool"),
            ("free", True, "tool"),
            ("nine", False, "tool"),
            ("nine", True, "tool"),
        ]
        for self.id_form, self.is_argument_text, self.result_role in ways:
            self.has_calls = True
            with contextlib.suppress(TemplateError):
                if self._try_calls():
                    return
        self.has_calls, self.id_form = False, "free"
        for self.result_role in ("tool", "user"):
            with contextlib.suppress(TemplateError):
                if self._try_calls():
                    return
        raise TemplateError("it has no place for what tools answer")

    def call(self, name: str, arguments: Mapping[str, Any], call_id: str) -> Chat:
        return call_of(name, arguments, call_id, is_text=self.is_argument_text)

    def result_chats(self, results: Sequence[tuple[str, str, str]]) -> list[Chat]:
        """Return messages with what tools answered: text, name and id of each."""
        if self.result_role == "tool":
            return [result_of(*result) for result in results]
        texts = [f"<tool_response>\n{text}\n</tool_response>" for text, *_ in results]
        return [said("user", "\n".join(texts))]

    def probe_answer(self, names: Sequence[tuple[str, str]]) -> Chat:
        """Return an answer that calls these tools, by name and id, with arguments of no importance."""
        if not self.has_calls:
            return answer_of(probes.VALUE)
        return answer_of("", calls=[self.call(name, {probes.KEY: probes.VALUE}, id_) for name, id_ in names])

    def call_id(self, given: str, place: int) -> str:
        """Return a call's id as the template wants it."""
        if self.id_form == "free":
            return given or f"call{place}"
        return hashlib.sha256((given or str(place)).encode()).hexdigest()[:9]

    def _try_calls(self) -> bool:
        identity = self.call_id("", 0)
        calling = self.probe_answer([(probes.TOOL_NAME, identity)])
        [result] = self.result_chats([(probes.RESULT, probes.TOOL_NAME, identity)])
        asked = said("user", probes.ASKED)
        call_text = self.render([asked, calling]).partition(probes.ASKED)[2]
        text = self.render([asked, calling, result]).partition(probes.ASKED)[2]
        wanted = (probes.TOOL_NAME, probes.KEY, probes.VALUE) if self.has_calls else (probes.VALUE,)
        is_shown = all(word in call_text for word in wanted)
        is_mangled = f"{{'{probes.KEY}'" in call_text or f'\\"{probes.KEY}' in call_text
        if not is_shown or is_mangled or probes.RESULT not in text or probes.VALUE not in text:
            return False
        tail = call_text.rpartition(probes.VALUE)[2]
        answered = text.rpartition(probes.RESULT)[0].partition(probes.VALUE)[2]
        is_closed = bool(self.answer_close) and self.answer_close in answered
        self.call_close = self.answer_close if is_closed else ""
        if not is_closed and not answered.startswith(tail):
            return False
        self.tool_open = answered.partition(self.call_close)[2] if is_closed else answered.removeprefix(tail)
        close = text.partition(probes.RESULT)[2]
        self._contexts["tool"] = ([asked, calling, result], probes.RESULT, close)
        self.tool_close = close
        self.begins["tool"] = self.opening("tool", {})
        self._learn_several()
        return True

    def _learn_several(self) -> None:
        """Learn whether an answer may call more than one tool, and where its words stand."""
        self.has_one_call = self.moves_words = False
        if not self.has_calls:
            return
        asked, called = said("user", probes.ASKED), (probes.TOOL_NAME, self.call_id("", 0))
        try:
            text = self.render([asked, self.probe_answer([called, (probes.TOOL_NAME, self.call_id("", 1))])])
            self.has_one_call = text.count(probes.VALUE) != 2
        except TemplateError:
            self.has_one_call = True
        with contextlib.suppress(TemplateError):
            text = self.render([asked, self.probe_answer([called]) | {"content": probes.ANSWERED}])
            self.moves_words = text.find(probes.ANSWERED) > text.find(probes.VALUE)

    def results(self, names: Sequence[tuple[str, str]], results: Sequence[Chat], values: Values) -> str:
        """Return what results add behind the closed answer that called these tools, by name and id."""
        chats = [said("user", probes.ASKED), self.probe_answer(names)]
        count = len(names) if self.has_calls else 1
        parts = self.render([*chats, *results], values=values).split(probes.VALUE, count)
        if len(parts) <= count:
            raise TemplateError("it moves a message")
        if self.call_close:
            _, found, added = parts[-1].partition(self.call_close)
            if found:
                return added
        else:
            tail = self.render(chats, values=values).rpartition(probes.VALUE)[2]
            if parts[-1].startswith(tail):
                return parts[-1].removeprefix(tail)
        raise TemplateError("it moves a message")

    def answer(self, kind: str, chat: Chat, names: Sequence[tuple[str, str]], values: Values) -> str:
        """Return a whole answer behind a message of that kind, without its end, as it stands later on."""
        if names and self.call_close and self.has_calls:
            results = self.result_chats([(probes.RESULT, *each) for each in names])
            text = self.behind(kind, [chat, *results], values).partition(probes.RESULT)[0]
            found, close, _ = text.rpartition(self.call_close + self.tool_open)
            if not close:
                found, close, _ = text.rpartition(self.call_close)
            if not close:
                raise TemplateError("it moves a message")
            return found
        if names:
            return self.newest_answer(kind, chat, values)
        text = self.behind(kind, [chat, said("user", probes.ASKED_MORE)], values)
        end = f"{self.answer_close}{self.user_open}{probes.ASKED_MORE}{self.user_close}"
        if not text.endswith(end):
            raise TemplateError("it rewrites messages")
        return text.removesuffix(end)

    def newest_answer(self, kind: str, chat: Chat, values: Values) -> str:
        """Return an answer without its end, as it stands while nothing follows."""
        text = self.behind(kind, [chat], values)
        return text.removesuffix(self.answer_close) if self.answer_close else text

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
        for tags in KNOWN:  # reasoning that every answer begins with is said, too
            if tags.is_open(self.begun):
                self.begun = self.begun[: self.begun.rfind(tags.opening)]
        if self.thought_key:
            self.think_begin = self._before_thought.removeprefix(self.begun)


def shared(one: str, other: str) -> str:
    """Return what both texts begin with."""
    pairs = zip(one, other, strict=False)
    size = next((at for at, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))
    return one[:size]


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

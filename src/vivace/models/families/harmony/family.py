"""gpt-oss: harmony, OpenAI's format of messages with channels.

Owns how conversations, tools and effort are written, what an answer begins with, and which grammars can be.
As OpenAI's renderer has it, but for three things: no date, which would throw the KV of every log away at
midnight; reasoning that a client sends back is shown where it was; and an answer of earlier ends as the
model ended it, with `<|return|>`. So a conversation that is sent again has the tokens of the log it came
from.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from vivace.models.families.base import (
    Call,
    Effort,
    Entry,
    Grammar,
    Message,
    Output,
    OutputSpec,
    Parser,
    Thought,
    Tool,
)
from vivace.models.families.calls.call_reader import callable_tools
from vivace.models.families.harmony.form import harmony_grammar, header_of
from vivace.models.families.harmony.parser import (
    ANALYSIS,
    CALL,
    CHANNEL,
    COMMENTARY,
    CONSTRAIN,
    END,
    FINAL,
    MESSAGE,
    RETURN,
    START,
    HarmonyParser,
    Header,
)
from vivace.models.families.harmony.typescript import FUNCTIONS, namespaces, recipient
from vivace.models.families.interruption import tell_interruptions
from vivace.models.families.token_writer import TemplateText, TokenWriter, guarded
from vivace.models.tokenizer import Tokenizer


class Mark(str):
    """The name of a control token, where it stands for the token."""

    __slots__ = ()


IDENTITY = "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06"
CHANNELS = "# Valid channels: analysis, commentary, final. Channel must be included for every message."
CALLS_GO = "Calls to these tools must go to the commentary channel: 'functions'."
CHANGED = "The tools have changed. From now on there are only these."
LEVELS: dict[Effort, str] = {"none": "low", "minimal": "low", "low": "low", "high": "high", "xhigh": "high"}
REASONING = "Reasoning: "
NOTES = ("No date is written, tools are described in OpenAI's words, and reasoning stays where it was said.",)
ROLE_TOKENS = 8  # at the beginning of a message: enough to see whether it is the system's
JSON = (" ", Mark(CONSTRAIN), "json")


class OpenMessage(NamedTuple):
    """The message that a log ends inside of. `body` is None if it ends in the header."""

    header: Header
    body: str | None


class Harmony:
    notes: tuple[str, ...] = NOTES

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        names = (START, CHANNEL, CONSTRAIN, MESSAGE, END, RETURN, CALL)
        self.ids = {name: tokenizer.control(name) for name in names}
        self.controls = {token: name for name, token in self.ids.items()}
        self.stop_tokens: tuple[int, ...] = (self.ids[RETURN], self.ids[CALL])
        self.guarded = guarded(tokenizer, names)

    # ---- what is written --------------------------------------------------------------------------

    def render(
        self,
        entries: Sequence[Entry],
        *,
        tools: Sequence[Tool] = (),
        after: Sequence[int] = (),
        effort: Effort = "",
    ) -> list[int]:
        entries = tell_interruptions(entries, self._unfinished_request(after))
        writer = HarmonyWriter(self, after, tools, entries)
        if not after and (entries or tools):
            calls_go = f"\n{CALLS_GO}" if tools else ""
            writer.write("system", f"{IDENTITY}\n\n{REASONING}{_level(effort)}\n\n{CHANNELS}{calls_go}")
        if tools:
            first = entries[0] if entries else None
            is_given = isinstance(first, Message) and first.role == "system" and not first.is_open
            text = first.text if isinstance(first, Message) and is_given else ""
            news = [CHANGED, CALLS_GO] if after else []
            writer.write("developer", _instructions(text), "\n\n".join([*news, namespaces(tools)]))
            entries = entries[is_given:]
        for place, entry in enumerate(entries):
            writer.add(entry, entries[place + 1] if place + 1 < len(entries) else None)
        return writer.tokens()

    def answer(self, log: Sequence[int], spec: OutputSpec) -> list[int]:
        open_message = self.open_message(log)
        writer = HarmonyWriter(self, log)
        if not open_message or open_message.header.role != "assistant":
            writer.close()
            if spec.effort and _level(spec.effort) != self._stated_level(log):
                writer.write("system", f"{REASONING}{_level(spec.effort)}")
            writer.begin_answer()
        elif open_message.body is not None or open_message.header.channel:
            return []
        writer.append(*(Mark(piece) if piece in self.ids else piece for piece in header_of(spec)))
        return writer.tokens()

    def end_thinking(self, log: Sequence[int], spec: OutputSpec) -> list[int]:
        open_message = self.open_message(log)
        if not open_message or open_message.header.role != "assistant":
            return []
        writer = HarmonyWriter(self, log)
        if open_message.header.channel == ANALYSIS:
            writer.begin_answer()
            writer.append(Mark(CHANNEL))
        elif open_message.body is None and not open_message.header.channel:
            writer.append(Mark(CHANNEL))
        else:
            return []
        if spec.choice != "required":  # or else a call follows
            writer.append(TemplateText(FINAL), Mark(MESSAGE))
        return writer.tokens()

    # ---- what the model says ----------------------------------------------------------------------

    def parser(self, spec: OutputSpec, log: Sequence[int]) -> Parser:
        tools = callable_tools(spec)
        open_message = self.open_message(log) or OpenMessage(Header(), None)
        parser = HarmonyParser(
            tools | {recipient(tool): tool for tool in tools.values()}, open_message.header
        )
        if open_message.body is not None:
            parser.resume(open_message.body)
        return parser

    def grammar(self, spec: OutputSpec) -> Grammar | None:
        return harmony_grammar(spec)

    # ---- what a log says --------------------------------------------------------------------------

    def open_message(self, log: Sequence[int]) -> OpenMessage | None:
        place = self._last(log, len(log), START, END, RETURN, CALL)
        if place < 0 or log[place] != self.ids[START]:
            return None
        return self._split(log[place + 1 :])

    def last_recipient(self, log: Sequence[int]) -> str:
        """Return the recipient of the last call in the log; "" if there is none."""
        end = self._last(log, len(log), CALL)
        start = self._last(log, end, START)
        return self._split(log[start + 1 : end]).header.recipient if start >= 0 else ""

    def _unfinished_request(self, log: Sequence[int]) -> str:
        """Return the user's request that the unfinished answer is about; "" if there is no such answer."""
        open_message = self.open_message(log)
        if not open_message or open_message.header.role != "assistant":
            return ""
        end = len(log)
        while (start := self._last(log, end, START)) >= 0:
            message = self._split(log[start + 1 : end])
            if message.header.role == "user":
                return message.body or ""
            end = start
        return ""

    def _stated_level(self, log: Sequence[int]) -> str:
        """Return the effort that the log names last."""
        start = len(log)
        while (start := self._last(log, start, START)) >= 0:
            if self._split(log[start + 1 : start + 1 + ROLE_TOKENS]).header.role == "system":
                tokens = itertools.takewhile(lambda token: token != self.ids[END], log[start + 1 :])
                _, found, level = (self._split(list(tokens)).body or "").partition(REASONING)
                if found:
                    return level.partition("\n")[0]
        return ""

    def _last(self, log: Sequence[int], end: int, *names: str) -> int:
        """Return the place of the last of these control tokens before `end`, or -1."""
        wanted = {self.ids[name] for name in names}
        return next((place for place in range(end - 1, -1, -1) if log[place] in wanted), -1)

    def _split(self, tokens: Sequence[int]) -> OpenMessage:
        """Read a message from the token after `<|start|>`, without its end."""
        parts: list[tuple[str, list[int]]] = [(START, [])]
        for place, token in enumerate(tokens):
            name = self.controls.get(token, "")
            if name == MESSAGE:
                return OpenMessage(self._header(parts), self._text(tokens[place + 1 :]))
            if name:
                parts.append((name, []))
            else:
                parts[-1][1].append(token)
        return OpenMessage(self._header(parts), None)

    def _header(self, parts: Sequence[tuple[str, Sequence[int]]]) -> Header:
        header = Header(self._text(parts[0][1]))
        for name, tokens in parts[1:]:
            header.control(name)
            header.feed(self._text(tokens))
        return header

    def _text(self, tokens: Sequence[int]) -> str:
        words = (self.tokenizer.token_bytes(token) for token in tokens if token not in self.controls)
        return b"".join(words).decode("utf-8", "replace")


class HarmonyWriter:
    """Writes messages at the end of a log."""

    def __init__(
        self, family: Harmony, after: Sequence[int], tools: Sequence[Tool] = (), entries: Sequence[Entry] = ()
    ) -> None:
        self._family = family
        self._after = after
        self._out = TokenWriter(family.tokenizer, family.guarded)
        self._open_message = family.open_message(after)  # by the log, and untouched
        self._end = ""  # what closes the message that is open here; "": none is
        self._is_in_answer = False  # and it is one of the assistant's text
        self._recipients = {tool.name: recipient(tool) for tool in tools}
        self._names = {entry.call_id: entry.name for entry in entries if isinstance(entry, Call)}

    def add(self, entry: Entry, following: Entry | None) -> None:
        match entry:
            case Message(role="assistant"):
                self._add_answer(entry, following)
            case Message(role="system"):
                self.write("developer", _instructions(entry.text))
            case Message():
                self.write("user", entry.text)
            case Thought():
                self._say(ANALYSIS, (), entry.text, END)
            case Call():
                kind = () if entry.is_custom else JSON
                to = [f" to={self._recipients.get(entry.name, f'{FUNCTIONS}.{entry.name}')}", *kind]
                self._say(COMMENTARY, to, entry.arguments, CALL)
            case Output():
                self._begin(
                    self._sender(entry),
                    TemplateText(" to=assistant"),
                    Mark(CHANNEL),
                    TemplateText(COMMENTARY),
                )
                self.append(Mark(MESSAGE), entry.text)
                self._end = END
        if not (isinstance(entry, Message) and entry.is_open):
            self.close()

    def write(self, role: str, *texts: str) -> None:
        """Write a message without a channel, with an empty line between its texts."""
        self._begin(TemplateText(role), Mark(MESSAGE))
        self.append("\n\n".join(filter(None, texts)))
        self._end = END

    def begin_answer(self) -> None:
        self._begin(TemplateText("assistant"))

    def append(self, *pieces: str) -> None:
        """Write text, and control tokens for marks."""
        for piece in pieces:
            if isinstance(piece, Mark):
                self._out.control(self._family.ids[piece])
            else:
                self._out.text(piece)

    def close(self) -> None:
        """End the open message, begun here or in the log."""
        if self._open_message:
            self.append(*([Mark(MESSAGE)] if self._open_message.body is None else []), Mark(END))
        elif self._end:
            self.append(Mark(self._end))
        self._open_message, self._end, self._is_in_answer = None, "", False

    def tokens(self) -> list[int]:
        return self._out.tokens()

    def _begin(self, *pieces: str) -> None:
        self.close()
        self.append(Mark(START), *pieces)

    def _say(self, channel: str, to: Sequence[str], text: str, end: str) -> None:
        """Begin a message of the assistant, and write its text."""
        self.begin_answer()
        self.append(Mark(CHANNEL), TemplateText(channel), *to, Mark(MESSAGE), text)
        self._end = end

    def _add_answer(self, message: Message, following: Entry | None) -> None:
        open_message = self._open_message
        is_ours = (
            open_message is not None
            and open_message.header.role == "assistant"
            and not open_message.header.recipient
        )
        if self._is_in_answer:
            self._out.cut()
            self.append(message.text)
        elif open_message and is_ours and open_message.body is not None:
            self.append(message.text)
            self._end = RETURN if open_message.header.channel == FINAL else END
        elif open_message and is_ours and not open_message.header.channel:
            self.append(Mark(CHANNEL), TemplateText(FINAL), Mark(MESSAGE), message.text)
            self._end = RETURN
        else:
            is_before_call = isinstance(following, Call) and not message.is_open
            channel, end = (COMMENTARY, END) if is_before_call else (FINAL, RETURN)
            self._say(channel, (), message.text, end)
        self._open_message, self._is_in_answer = None, True

    def _sender(self, output: Output) -> str:
        """Return the tool that answers, written as a recipient."""
        name = output.name or self._names.get(output.call_id, "")
        if not name:
            return self._family.last_recipient(self._after) or f"{FUNCTIONS}.tool"
        return self._recipients.get(name, f"{FUNCTIONS}.{name}")


def _level(effort: Effort) -> str:
    return LEVELS.get(effort, "medium")


def _instructions(text: str) -> str:
    return f"# Instructions\n\n{text}" if text else ""

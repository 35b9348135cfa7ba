"""A chat family made from a model file's own template.

Owns the way from entries to tokens and back: which place a log ends at, what an answer begins with, which
tokens end it, and how its calls and its reasoning are read. What the template writes is in `frames` and
`script`; whether it can be held at all in `judging`.
"""

from collections.abc import Container, Iterable, Sequence
from typing import Any

import msgspec

from vivace.models.families.base import Effort, Entry, Grammar, OutputSpec, Parser, Tool
from vivace.models.families.calls.call_format import CallFormat
from vivace.models.families.calls.call_reader import callable_tools
from vivace.models.families.calls.formats import PROBES, format_of
from vivace.models.families.calls.known_formats import FORMATS, HERMES
from vivace.models.families.calls.lark_grammar import grammar_of
from vivace.models.families.calls.reasoning import Reasoning, reasoning_of
from vivace.models.families.calls.text_parser import TextParser
from vivace.models.families.interruption import tell_interruptions
from vivace.models.families.template import probes
from vivace.models.families.template.efforts import QUICK, efforts_of
from vivace.models.families.template.frames import Frames
from vivace.models.families.template.judging import judge
from vivace.models.families.template.log_end import LogEnd
from vivace.models.families.template.masking import Mask, all_text
from vivace.models.families.template.names import written_by
from vivace.models.families.template.probes import answer_of
from vivace.models.families.template.sandbox import Template, TemplateError
from vivace.models.families.template.script import Place, Script
from vivace.models.families.template.tokens import Tokens, markers_of
from vivace.models.families.token_writer import silent_markers
from vivace.models.tokenizer import Tokenizer

NO_PARSER = "The form of its calls is not known: what it calls is shown as text."


class TemplateFamily:
    def __init__(self, tokenizer: Tokenizer, source: str) -> None:
        """Learn a template; raise a `TemplateError` if it cannot be held."""
        self.tokenizer = tokenizer
        vocabulary = tokenizer.vocabulary()
        template = Template(source)
        markers = markers_of(vocabulary, [*template.texts, *written_by(template, vocabulary)])
        if markers.unsafe:
            raise TemplateError("it has a marker of letters alone, which a user could write, too")
        self.frames = frames = Frames(template, markers, bos=vocabulary.bos, eos=vocabulary.eos)
        verdict = judge(frames)
        if verdict.refusal:
            raise TemplateError(verdict.refusal)
        self.notes = verdict.notes
        self._efforts = efforts_of(frames)
        self._tags = tags_of(frames)
        call_format = format_in(frames, vocabulary.markers)
        if call_format is None:
            self.notes += (NO_PARSER,)
        self.call_format = call_format or HERMES
        self._style = msgspec.structs.replace(self.call_format.style, reasoning=self._tags)
        self.stop_tokens = tuple(self._tokens_of(_stop_names(frames)))
        self.controls = self._controls()
        self._form = self.call_format.held(self.controls.values())
        self._ends = LogEnd(frames, tokenizer, frozenset({*self.stop_tokens, *tokenizer.end_tokens}))

    def _tokens_of(self, names: Iterable[str]) -> list[int]:
        known = self.tokenizer.vocabulary().markers
        return sorted({known[name].token for name in names if name in known})

    def _controls(self) -> dict[int, str]:
        """Return the markers in calls and reasoning that a decoder would not see."""
        tags, style = self._tags, self._style
        words = [*self.call_format.markers, *style.openers, *style.closers, *style.ends, *style.dropped]
        words += [tags.opening, tags.closing] if tags else []
        names = [name for word in words for name in (word, *self.frames.markers.split(word)[1::2])]
        found = silent_markers(self.tokenizer, tuple(dict.fromkeys(names)))
        ends = {*self.stop_tokens, *self.tokenizer.end_tokens}
        return {token: name for token, name in found.items() if token not in ends}

    # ---- what is written --------------------------------------------------------------------------

    def render(
        self,
        entries: Sequence[Entry],
        *,
        tools: Sequence[Tool] = (),
        after: Sequence[int] = (),
        effort: Effort = "",
    ) -> list[int]:
        place = self._ends.place(after)
        entries = tell_interruptions(entries, self._unfinished_request(place, after))
        texts = all_text([msgspec.to_builtins(entry) for entry in (*entries, *tools)])
        script = self._script(place, texts, effort)
        script.write(entries, tools)
        return self._tokens(script, after)

    def answer(self, log: Sequence[int], spec: OutputSpec) -> list[int]:
        place = self._ends.place(log)
        script = self._script(place, "", spec.effort)
        before = _text_so_far(place)
        if before is None:
            kind = "tool" if place.kind == "tool" else "user"
            script.begin_answer(self._opening(kind, spec.effort))
        script.go_on(self._certain(before or "", spec, is_new=before is None))
        return self._tokens(script, log)

    def _certain(self, before: str, spec: OutputSpec, *, is_new: bool) -> str:
        """Return what `spec` makes certain of an answer, behind what its template begins it with."""
        tags = self._tags
        begun = self._opening("user", spec.effort) if is_new else before
        if tags and tags.is_open(begun):
            return ""
        if is_new and tags and self._thinks(spec):
            return tags.begun if self.grammar(spec) is not None else ""
        if spec.choice != "required" or not spec.tools or self._is_in_call(before):
            return ""
        return ("\n" if before.strip() and self._style.glue else "") + self.call_format.opening

    def end_thinking(self, log: Sequence[int], spec: OutputSpec) -> list[int]:
        place = self._ends.place(log)
        before, tags = _text_so_far(place), self._tags
        if before is None or tags is None or not self._thinks(spec):
            return []
        script = self._script(place, "", spec.effort)
        if tags.is_open(before):
            script.go_on(tags.ended)
        elif not before.strip():
            script.go_on(tags.skipped)
        return self._tokens(script, log)

    def _script(self, place: Place, texts: str, effort: Effort) -> Script:
        mask = Mask(self.frames.markers, texts + self.frames.template.source)
        values = self._values(effort)
        return Script(self.frames, mask, place, values=values, tags=self._tags, call_format=self.call_format)

    def _tokens(self, script: Script, after: Sequence[int]) -> list[int]:
        out = Tokens(self.tokenizer, self.frames.markers, after)
        for piece in script.pieces:
            if piece.is_cut:
                out.cut()
            out.write(script.mask.pieces(piece.text))
        tokens = out.tokens()
        begin = self.tokenizer.vocabulary().begin
        if not after and tokens and begin is not None and tokens[0] != begin:
            tokens.insert(0, begin)
        return tokens

    def _opening(self, kind: str, effort: Effort) -> str:
        try:
            return self.frames.opening(kind, self._values(effort))
        except TemplateError:
            return self.frames.begins.get(kind, self.frames.begun)

    def _values(self, effort: Effort) -> dict[str, Any]:
        return self._efforts.get(effort, {})

    # ---- the log ----------------------------------------------------------------------------------

    def unfinished_answer(self, log: Sequence[int]) -> str | None:
        """Return the text so far of the answer that the log ends inside of; None if there is none."""
        return _text_so_far(self._ends.place(log))

    def _unfinished_request(self, place: Place, log: Sequence[int]) -> str:
        return self._ends.request(log) if _text_so_far(place) is not None else ""

    def _is_in_call(self, text: str) -> bool:
        style = self._style
        opened = max((text.rfind(opener) for opener in style.openers), default=-1)
        return opened >= 0 and opened > max((text.rfind(closer) for closer in style.closers), default=-1)

    # ---- what the model says ----------------------------------------------------------------------

    def parser(self, spec: OutputSpec, log: Sequence[int]) -> Parser:
        return TextParser(callable_tools(spec), self._style, before=self.unfinished_answer(log) or "")

    def grammar(self, spec: OutputSpec) -> Grammar | None:
        tags = self._tags
        reasoning = [_rule(tags)] if tags and self._thinks(spec) else []
        return grammar_of(spec, self._form, reasoning=reasoning)

    def _thinks(self, spec: OutputSpec) -> bool:
        """Return whether the answer may begin with reasoning."""
        if not self._tags:
            return False
        begun = self._opening("user", spec.effort)
        if self._tags.closing in begun or self._tags.opening in begun:
            return self._tags.is_open(begun)
        return spec.effort not in QUICK


def _text_so_far(place: Place) -> str | None:
    return place.said if place.kind == "assistant" and not place.stop else None


def _rule(tags: Reasoning) -> str:
    """Return the grammar's rule for reasoning up to its end."""
    closing = "".join(f"\\{char}" if not char.isalnum() and char.isascii() else char for char in tags.closing)
    return f"reasoning[lazy]: /(?s:.*){closing}/"


def _stop_names(frames: Frames) -> list[str]:
    """Return the markers that end an answer: what its end begins with, or else what comes next."""
    names: list[str] = []
    for text in (frames.answer_close, frames.call_close):
        names += frames.markers.split(text)[1:2]
    if not frames.markers.has_any(frames.answer_close):
        names += [
            name for text in (frames.user_open, frames.tool_open) for name in frames.markers.split(text)[1:2]
        ]
    return names


def format_in(frames: Frames, vocabulary: Container[str] = ()) -> CallFormat | None:
    """Return the format of the calls that the template writes; None if nobody knows it.

    Where it writes none, the vocabulary may have a marker that only one format begins with.
    """
    if not frames.has_calls:
        return next((each for each in FORMATS if each.style.openers[0] in vocabulary), HERMES)
    written = []
    for count in (1, 2):
        calls = [
            frames.call(call.name, probes.arguments_of(call), frames.call_id(call.call_id, place))
            for place, call in enumerate(PROBES[:count])
        ]
        names = [
            (call.name, frames.call_id(call.call_id, place)) for place, call in enumerate(PROBES[:count])
        ]
        try:
            text = frames.answer("user", answer_of("", calls=calls), names, {})
        except TemplateError:
            text = ""
        written.append(text.removeprefix(frames.begun))
    return format_of(written[0], "" if frames.has_one_call else written[1])


def tags_of(frames: Frames) -> Reasoning | None:
    """Return the tags around reasoning, or None if the template knows none."""
    if frames.thought_key:
        chat = answer_of(probes.ANSWERED, probes.THOUGHT, frames.thought_key)
        text = frames.behind("user", [chat])
        if found := reasoning_of(text, probes.THOUGHT, probes.ANSWERED):
            return found
        begin, end = frames.think_begin, frames.think_end
        if begin.strip() and end.strip():
            return Reasoning(begin.strip(), end.strip(), begin, end)
    begun = frames.begins["user"]
    found = reasoning_of(begun + "\n".join(frames.template.texts))
    if not found or found.opening not in begun:
        return found
    opened = begun[begun.rfind(found.opening) :]
    is_on_lines = opened.startswith(found.opening + "\n")
    breaks = ("\n", "\n", "\n\n") if is_on_lines else ("", "", "")
    begin, end = found.opening + breaks[0], breaks[1] + found.closing + breaks[2]
    return msgspec.structs.replace(found, begun=begin, ended=end)

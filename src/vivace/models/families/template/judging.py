"""Whether a chat template can be held: written message by message, and yet as the template writes it.

Owns the trial: conversations of every kind, written turn by turn, against the template's own text of the
whole. What it says is shown when a model is loaded, and before one is downloaded.
"""

import contextlib
from collections.abc import Sequence

import msgspec

from vivace.models.families.base import Call, Entry, Family, Message, Output, OutputSpec, Thought, Tool
from vivace.models.families.calls.reasoning import KNOWN
from vivace.models.families.template import probes
from vivace.models.families.template.frames import NOTHING, Frames
from vivace.models.families.template.masking import Markers, Mask
from vivace.models.families.template.names import names_in
from vivace.models.families.template.probes import Chat, Turn, definition_of, turns_of
from vivace.models.families.template.sandbox import Template, TemplateError
from vivace.models.families.template.script import Place, Script

REASONING = "Reasoning of earlier turns stays in the conversation; its template would drop it."
HEAD = "Instructions and tools stay where they were first written; its template would move them."
REWRITES = "Earlier messages stay as they were first written; its template would write them anew."
NO_TOOLS = "Its template has no words for tools: they are told of in Vivace's own."
NO_CALLS = "Its template has no form for calls: they are written as JSON in `<tool_call>`."
WITHOUT = "With instructions its template writes some messages in another way; they are written as without."
ONE_CALL = "An answer calls one tool at a time."
WORDS = "Words stay before the call they were said with; its template would move or drop one of them."
OPENING = "What answers begin with stays in the conversation; its template would drop it from earlier ones."
AGAIN = "Later calls are written as the first one is; its template numbers them."
NO_SYSTEM = "Its template has no place for instructions: they stand in front of the first message."

USER, MORE, LAST = (
    Message("user", "Tapir asks"),
    Message("user", "Moose asks more"),
    Message("user", "Gecko thanks"),
)
ANSWER, NEXT = Message("assistant", "Bison says"), Message("assistant", "Koala says more")
SYSTEM = Message("system", "Yak rules")
CALLS = (
    Call("probe_tool", '{"probekey": "Crane"}', "callaaaa1"),
    Call("probe_tool", '{"probekey": "Raven"}', "callaaaa2"),
)
OUTPUTS = (Output("Finch out", "callaaaa1", "probe_tool"), Output("Robin out", "callaaaa2", "probe_tool"))
MUSED, MUSED_MORE = Thought("Eagle thinks"), Thought("Hawk thinks")


class Verdict(msgspec.Struct, frozen=True):
    refusal: str = ""  # a clause that says why the template cannot be held; "": it can
    notes: tuple[str, ...] = ()  # what differs from the template, each a sentence
    differs: tuple[str, ...] = ()  # names of conversations whose earlier messages the template rewrites


CASES: dict[str, tuple[list[Entry], bool]] = {
    "one turn": ([USER], False),
    "instructions": ([SYSTEM, USER], False),
    "several turns": ([SYSTEM, USER, ANSWER, MORE, NEXT, LAST], False),
    "several turns without instructions": ([USER, ANSWER, MORE, NEXT, LAST], False),
    "tools": ([SYSTEM, USER], True),
    "tools without instructions": ([USER], True),
    "tools, several turns": ([SYSTEM, USER, ANSWER, MORE], True),
    "a call": ([SYSTEM, USER, CALLS[0], OUTPUTS[0]], True),
    "a call with words": ([SYSTEM, USER, ANSWER, CALLS[0], OUTPUTS[0]], True),
    "two calls": ([SYSTEM, USER, *CALLS, *OUTPUTS], True),
    "a call, then turns": ([SYSTEM, USER, CALLS[0], OUTPUTS[0], ANSWER, MORE, NEXT, LAST], True),
    "two calls, one after another": ([USER, CALLS[0], OUTPUTS[0], CALLS[1], OUTPUTS[1], ANSWER, MORE], True),
    "reasoning": ([SYSTEM, USER, MUSED, ANSWER], False),
    "reasoning, several turns": ([SYSTEM, USER, MUSED, ANSWER, MORE, MUSED_MORE, NEXT, LAST], False),
    "reasoning and calls": ([SYSTEM, USER, MUSED, CALLS[0], OUTPUTS[0]], True),
    "reasoning and calls, several turns": (
        [SYSTEM, USER, MUSED, CALLS[0], OUTPUTS[0], MUSED_MORE, ANSWER, MORE], True,
    ),
}  # fmt: skip


class Trial:
    """One template on trial."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self.mask = Mask(frames.markers, "")

    def written(self, entries: Sequence[Entry], tools: Sequence[Tool]) -> str:
        """Return a conversation as it is written turn by turn, up to where the model speaks."""
        script = Script(self.frames, self.mask, Place())
        turns = turns_of(entries)
        for place, turn in enumerate(turns):
            script.write(turn, tools if not place else ())
        kind = script.place.kind
        if kind != "assistant":
            script.begin_answer(self.frames.opening(kind if kind == "tool" else "user", {}))
        return "".join(part for piece in script.pieces for part in self.mask.pieces(piece.text))

    def own(self, entries: Sequence[Entry], tools: Sequence[Tool]) -> str:
        """Return the template's own text of the same."""
        turns = turns_of(entries)
        shown = [definition_of(tool, str, lambda schema: schema) for tool in tools]
        asks = turns[-1].kind != "assistant"
        return self.frames.render(self.chats(turns), shown, asks=asks)

    def chats(self, turns: Sequence[Turn]) -> list[Chat]:
        found: list[Chat] = []
        script = Script(self.frames, self.mask, Place())
        for turn in turns:
            match turn.kind:
                case "assistant":
                    found.append(script._chat(turn)[0])
                case "tool":
                    outputs = [each for each in turn if isinstance(each, Output)]
                    found += self.frames.result_chats(
                        [
                            (each.text, each.name, self.frames.call_id(each.call_id, place))
                            for place, each in enumerate(outputs)
                        ]
                    )
                case _:
                    first = turn[0]
                    assert isinstance(first, Message)
                    found.append(probes.said(first.role, first.text))
        return found

    def is_same(self, entries: Sequence[Entry], tools: Sequence[Tool]) -> bool:
        ours, own = self.written(entries, tools), self.own(entries, tools)
        if turns_of(entries)[-1].kind == "assistant":  # its end comes with the next message, here or there
            return own.startswith(ours) or ours.startswith(own)
        return ours == own

    def newest_is_same(self, entries: Sequence[Entry], tools: Sequence[Tool]) -> bool:
        """Return whether each message is as the template writes it when it is the newest.

        From the last word of the message before it, up to where the model speaks.
        """
        turns = turns_of(entries)
        last = ""
        for size, turn in enumerate(turns, start=1):
            word, before = _last_word(turn), last
            last = word
            if turn.kind == "system":
                last = before
                continue
            part = [entry for each in turns[:size] for entry in each]
            ours, own = self.written(part, tools), self.own(part, tools)
            if turn.kind == "assistant":
                added = ours[len(self.written(part[: -len(turn)], tools)) :] if before else ours
                added = added[: added.rfind(word) + len(word)]
                if added not in own:
                    return False
            elif not before:
                if ours != own:
                    return False
            elif not own.endswith(ours[ours.rfind(before) :]):
                return False
        return True


def _last_word(turn: Turn) -> str:
    match turn[-1]:
        case Call(arguments=arguments):
            return arguments.split('"')[-2]
        case Message(text=text) | Thought(text=text) | Output(text=text):
            return text
    raise AssertionError("turns have words")


def judge_source(source: str) -> Verdict:
    """Try a template without its vocabulary, by what looks like a marker in it."""
    template = Template(source)
    return judge(Frames(template, Markers(names_in(template)), bos="<s>", eos="</s>"))


def same_tokens(one: Family, other: Family) -> bool:
    """Return whether two families write the same, message by message, and begin answers alike."""
    for entries, has_tools in CASES.values():
        tools = (probes.TOOL,) if has_tools else ()
        logs: list[list[int]] = [[], []]
        for place, turn in enumerate(turns_of(entries)):
            for log, family in zip(logs, (one, other), strict=True):
                log += family.render(turn, tools=() if place else tools, after=log)
        if turns_of(entries)[-1].kind == "assistant":
            continue
        for effort in ("", "low", "high"):
            spec = OutputSpec(effort=effort)
            ends = [log + family.answer(log, spec) for log, family in zip(logs, (one, other), strict=True)]
            if ends[0] != ends[1]:
                return False
    return True


def judge(frames: Frames) -> Verdict:
    """Try a template."""
    trial = Trial(frames)
    notes: list[str] = []
    differs: list[str] = []
    if not frames.has_tools:
        notes.append(NO_TOOLS)
    if not frames.has_calls:
        notes.append(NO_CALLS)
    if not frames.has_system:
        notes.append(NO_SYSTEM)
    if frames.has_calls and frames.has_one_call:
        notes.append(ONE_CALL)
    if drops_opening(frames):
        notes.append(OPENING)
    for name, (entries, has_tools) in CASES.items():
        tools = (probes.TOOL,) if has_tools and frames.has_tools else ()
        if name == "two calls" and frames.has_calls and frames.has_one_call:
            continue
        tried = [entry for entry in entries if not is_left_out(entry, frames)]
        try:
            if trial.is_same(tried, tools):
                continue
        except TemplateError as error:
            return Verdict(refusal=f"{error} ({name})")
        differs.append(name)
        note = note_of(trial, tried, tools)
        if not note:
            return Verdict(
                refusal=f"a message is not as its template writes it ({name})", differs=tuple(differs)
            )
        if note not in notes:
            notes.append(note)
    return Verdict(notes=tuple(notes), differs=tuple(differs))


def drops_opening(frames: Frames) -> bool:
    """Return whether an answer without reasoning begins otherwise while it is made than later on."""
    opening = frames.begins["user"]
    if any(tags.is_open(opening) for tags in KNOWN):  # with its reasoning it is tried as a conversation
        return False
    try:
        return not frames.answer("user", probes.answer_of(probes.ANSWERED), (), NOTHING).startswith(opening)
    except TemplateError:
        return False


def is_left_out(entry: Entry, frames: Frames) -> bool:
    """Return whether the template has no place for such an entry at all."""
    is_system = isinstance(entry, Message) and entry.role == "system"
    return (is_system and not frames.has_system) or (isinstance(entry, Thought) and not frames.thought_key)


def note_of(trial: Trial, entries: list[Entry], tools: Sequence[Tool]) -> str:
    """Return the sentence about a conversation whose whole the template writes differently."""
    with contextlib.suppress(TemplateError):
        bare = [entry for entry in entries if not isinstance(entry, Thought)]
        headless = [entry for entry in entries if not (isinstance(entry, Message) and entry.role == "system")]
        is_newest_same = trial.newest_is_same(entries, tools)
        if is_newest_same and len(bare) < len(entries) and trial.is_same(bare, tools):
            return REASONING
        if (len(headless) < len(entries) or tools) and trial.is_same(headless, ()):
            return WITHOUT if _has_same_head(trial, entries, tools) else HEAD
        if is_newest_same:
            return REWRITES
    with contextlib.suppress(TemplateError):
        if (
            not _has_same_head(trial, entries, tools)
            and (len(headless) < len(entries) or tools)
            and trial.newest_is_same(headless, ())
        ):
            return HEAD
    with contextlib.suppress(TemplateError):
        wordless = [entry for place, entry in enumerate(entries) if not _is_before_call(entries, place)]
        if trial.frames.moves_words and len(wordless) < len(entries) and trial.is_same(wordless, tools):
            return WORDS
        calls = [entry for entry in entries if isinstance(entry, Call)]
        outputs = [entry for entry in entries if isinstance(entry, Output)]
        later = [entry for entry in entries if entry not in (*calls[:1], *outputs[:1])]
        if len(calls) > 1 and trial.newest_is_same(later, tools):
            return AGAIN
    return ""


def _has_same_head(trial: Trial, entries: list[Entry], tools: Sequence[Tool]) -> bool:
    """Return whether the template begins as it began when the conversation was new."""
    first = [entry for entry in entries[:2] if isinstance(entry, Message)]
    begun = trial.written(first, tools).partition(USER.text)[0]
    return trial.own(entries, tools).startswith(begun)


def _is_before_call(entries: list[Entry], place: int) -> bool:
    entry, after = entries[place], entries[place + 1 : place + 2]
    return (
        isinstance(entry, Message)
        and entry.role == "assistant"
        and any(isinstance(each, Call) for each in after)
    )

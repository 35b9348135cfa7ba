"""How an interruption is best told to a model: wordings, tried on the cases of `vivace eval steers`.

    prepare --model GGUF PLAN.json [--all-cases]        where llama.cpp is: the cases and wordings as tokens
    run --model GGUF PLAN.json RESULT.json [--device]   anywhere: CPU, or `--device cuda` without llama.cpp
    show RESULT.json                                    the table again; `--texts WORDING` with the answers

`prepare` leaves the cases that are held out aside unless told otherwise; `--only a,b` takes these wordings.
Owns the wordings that were tried and the greedy loop around a bare runner. Does not own the cases and their
checks (`vivace.eval.steers`), nor the wording that was chosen (`models/families`).
"""

import argparse
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from vivace.engine.runners.base import Runner, Span
from vivace.eval.steers.cases import Case, read_cases
from vivace.eval.steers.checks import passes

CONTEXT_TOKENS = 16_384
GROUP = 12  # cases at once; each has one sequence for its first answer
AT_ONCE = 48  # answers at once
CONTROL = "(no steer)"  # the first answer goes on: its checks must fail


class Wording(msgspec.Struct, frozen=True):
    """What stands around a steer. `{ask}` is what was asked for first."""

    cut: str = ""  # behind what was said so far, before its end
    note: str = ""  # a system message before the steer
    before: str = ""  # in the user's message
    after: str = ""
    late_note: str = ""  # a system message behind the steer
    reply: str = ""  # at the beginning of the answer


IF_ADDS = (
    "If it changes or adds to the task, do the task again with the change; if it is something else, drop "
    "the task."
)
WORDINGS: dict[str, Wording] = {
    "plain": Wording(),
    "ellipsis": Wording(cut="…"),
    "cut-interrupted": Wording(cut=" [interrupted by the user]"),
    "cut-lines": Wording(cut="\n\n[interrupted]"),
    "cut-stop": Wording(cut="… Wait, the user is speaking. I stop here and do what they say now."),
    "cut-sorry": Wording(cut="\n\n(I was interrupted by the user and will now follow the new instruction.)"),
    "note-short": Wording(note="The user interrupted the assistant."),
    "note-follow": Wording(
        note="The user interrupted your answer. Follow the user's next message; it takes precedence over "
        "what was asked before."
    ),
    "note-if": Wording(note=f"The user interrupts your unfinished answer with a new message. {IF_ADDS}"),
    "late-follow": Wording(late_note="The user interrupted your answer. Do what the last message says."),
    "late-if": Wording(late_note=f"The user interrupted your answer. {IF_ADDS}"),
    "before-says": Wording(before="[The user interrupted you here and says:] "),
    "before-only": Wording(
        before="[The user interrupted you here and says:] ", after=" Answer only this last message."
    ),
    "before-interrupt": Wording(before="(interrupting) "),
    "before-stop": Wording(before="Stop. "),
    "before-wait": Wording(before="Wait. "),
    "before-if": Wording(before=f"[I interrupt you. {IF_ADDS}]\n"),
    "after-if": Wording(after=f"\n\n[This interrupts your answer. {IF_ADDS}]"),
    "after-now": Wording(after="\n\n(Your answer was interrupted by this message. Do as it says now.)"),
    "after-start": Wording(
        after="\n\n(I interrupted you. Do not go on with what you were writing; begin anew.)"
    ),
    "after-repeat": Wording(after='\n\n(This interrupts your answer to: "{ask}")'),
    "before-repeat": Wording(before='I interrupt your answer to "{ask}": '),
    "repeat-change": Wording(before='About my request "{ask}", there is a change: '),
    "cut-and-after": Wording(
        cut="… [interrupted]", after="\n\n(I interrupted you. Do as I say now, from the beginning.)"
    ),
    "cut-and-note": Wording(
        cut="… [interrupted]",
        note="The answer was interrupted. The next message of the user changes what is wanted.",
    ),
}
STOP = "… Wait, the user is speaking. I stop here and do what they say now."
ASKED = '\n\n(I had asked: "{ask}")'
WORDINGS |= {
    "cut-speaking": Wording(cut="… Wait, the user is speaking."),
    "cut-listen": Wording(cut="…\n\n(The user interrupts.)"),
    "cut-first": Wording(cut="\n\n[The user interrupts. What they say next comes first.]"),
    "cut-change": Wording(
        cut="… Wait, the user wants a change. I stop here and answer again as they say next."
    ),
    "cut-over": Wording(cut="… Wait. I will start over with what the user says next."),
    "cut-anew": Wording(
        cut="… The user interrupts me. I will answer anew and take into account what they say next."
    ),
    "cut-both": Wording(
        cut="… Wait, the user is speaking. I stop here. If they want a change, I will answer again with it; "
        "if they want something else, I will do only that."
    ),
    "cut-stop+note-if": Wording(cut=STOP, note=f"The user interrupts. {IF_ADDS}"),
    "cut-stop+note": Wording(cut=STOP, note="The user interrupted the assistant."),
    "cut-stop+wait": Wording(cut=STOP, before="Wait. "),
    "cut-stop+repeat": Wording(cut=STOP, after='\n\n(This interrupts your answer to: "{ask}")'),
    "cut-stop+before": Wording(cut=STOP, before='I interrupt your answer to "{ask}": '),
    "cut-stop+change": Wording(cut=STOP, before='About my request "{ask}", there is a change: '),
    "cut-stop+asked": Wording(cut=STOP, after=ASKED),
    "cut-stop+about": Wording(cut=STOP, before="About your answer: "),
    "cut-stop+change-it": Wording(cut=STOP, before="Change your answer: "),
    "cut-lines+repeat": Wording(
        cut="\n\n[interrupted]", after='\n\n(This interrupts your answer to: "{ask}")'
    ),
    "cut-lines+asked": Wording(cut="\n\n[interrupted]", after=ASKED),
    "asked": Wording(after=ASKED),
    "asked-before": Wording(before='(I had asked: "{ask}")\n\n'),
    "asked-now": Wording(before='First I asked: "{ask}" Now I interrupt you and say: '),
    "asked-then": Wording(before='My request was: "{ask}"\nWhile you were answering, I say: '),
    "about": Wording(before="About your answer: "),
    "about-paren": Wording(before="(about your last answer) "),
    "while": Wording(before="[while you were answering] "),
    "or-new": Wording(after="\n\n(This is about what you were just writing, unless it is something new.)"),
    "plan": Wording(before="Change of plan: "),
    "note-either": Wording(
        note="The user interrupts. Their next message either changes the current task or replaces it."
    ),
    "note-apply": Wording(
        note="The user interrupts. Apply their next message to the current task, or do it instead."
    ),
    "reply-stop": Wording(reply="(I stop there and do as you say now.)\n\n"),
    "reply-understood": Wording(reply="Understood, here is what you want now:\n\n"),
    "reply-okay": Wording(reply="Okay. "),
    "reply-again": Wording(reply="[answering again, as you just said]\n\n"),
    "cut-stop+reply": Wording(cut=STOP, reply="(As you say now:)\n\n"),
    "cut-stop+reply-ok": Wording(cut=STOP, reply="Okay. "),
}
WORDINGS |= {
    "again": Wording(before="{ask}\n\n"),
    "again-line": Wording(before="{ask} "),
    "again-but": Wording(before="{ask}\n\nBut: "),
    "again-also": Wording(before="{ask}\n\n(Begin again, with this:) "),
    "asked-begin": Wording(before='(I had asked: "{ask}" Begin again, like this:)\n\n'),
    "asked-answer": Wording(before='(I had asked: "{ask}" Answer that again, with this change:)\n\n'),
    "asked-either": Wording(
        before='(I had asked: "{ask}" If this changes that, answer it again with the change:)\n\n'
    ),
    "asked-now-this": Wording(before='(I had asked: "{ask}" But now:)\n\n'),
    "asked-this": Wording(before='(I had asked: "{ask}" Now this comes first:)\n\n'),
    "asked-short": Wording(before='"{ask}"\n\n'),
    "stop-that": Wording(before="(Stop what you were writing.)\n\n"),
    "new-request": Wording(before="(A new request:)\n\n"),
}
# One wording for a message that drops the task, another for one that changes it.
ROUTES = {
    f"{drop}|{change}": (drop, change)
    for drop in ("plain", "note-short", "stop-that", "new-request")
    for change in ("asked-before", "again", "again-also", "asked-begin", "asked-answer")
}
DROPS = re.compile(
    r"\b(stop|forget|never ?mind|leave (that|it|this)|drop|skip|enough|something else|cancel|scrap)\b", re.I
)


def wording_for(name: str, steer: str) -> Wording:
    drop, change = ROUTES.get(name, (name, name))
    return WORDINGS[drop if DROPS.search(steer) else change]


class Planned(msgspec.Struct, frozen=True):
    """A case as tokens."""

    case: Case
    prompt: list[int]
    steers: dict[str, list[list[int]]]  # by wording: what follows each answer that is interrupted


class Plan(msgspec.Struct, frozen=True):
    stops: list[int]
    wordings: list[str]
    cases: list[Planned]


# ---- here: text to tokens --------------------------------------------------------------------------


def prepare(model: Path, *, has_all: bool, only: Sequence[str]) -> Plan:
    from vivace.models.families.base import Message, OutputSpec
    from vivace.models.families.choose import family_for
    from vivace.models.tokenizer import GgufTokenizer

    tokenizer = GgufTokenizer(model)
    family = family_for(tokenizer, str(model))
    names = [name for name in (*WORDINGS, *ROUTES) if not only or name in only]
    planned = []
    for case in read_cases():
        if case.held_out and not has_all:
            continue
        prompt = family.render([Message("user", case.ask)])
        prompt += family.answer(prompt, OutputSpec())

        def steer_tokens(
            wording: Wording, text: str, case: Case = case, log: list[int] = prompt
        ) -> list[int]:
            words = {
                name: value.replace("{ask}", case.ask)
                for name, value in msgspec.structs.asdict(wording).items()
            }
            entries = [Message("system", words["note"])] if words["note"] else []
            entries.append(Message("user", words["before"] + text + words["after"]))
            if words["late_note"]:
                entries.append(Message("system", words["late_note"]))
            said = tokenizer.encode(
                "x"
            )  # the answer must not be empty, or it would not be an interrupted one
            after = [*log, *said]
            tokens = family.render(entries, after=after)
            return (
                tokenizer.encode(words["cut"])
                + tokens
                + family.answer([*after, *tokens], OutputSpec())
                + tokenizer.encode(words["reply"])
            )

        steers = {
            name: [steer_tokens(wording_for(name, steer.text), steer.text) for steer in case.steers]
            for name in names
        }
        planned.append(Planned(case, prompt, steers))
    stops = sorted({*tokenizer.end_tokens, *family.stop_tokens})
    return Plan(stops, names, planned)


# ---- there: tokens to answers ----------------------------------------------------------------------


class Answer:
    """One sequence that is being written, greedily."""

    def __init__(self, seq: int, length: int, fed: Sequence[int], tokens: int) -> None:
        self.seq, self.length, self.fed, self.tokens = seq, length, list(fed), tokens
        self.said: list[int] = []

    def take(self, token: int, stops: frozenset[int]) -> bool:
        """Take the next token; return whether the answer goes on."""
        self.length += len(self.fed)
        self.fed = [token]
        if token in stops:
            return False
        self.said.append(token)
        return len(self.said) < self.tokens


def write_all(runner: Runner, answers: Sequence[Answer], stops: frozenset[int]) -> None:
    """Write all answers to their ends, in passes shared by as many as there is room for."""
    live = [answer for answer in answers if answer.tokens]
    while live:
        going = []
        for batch in batches(live, runner.info.pass_tokens):
            spans = [Span(answer.seq, answer.length, answer.fed, want=1) for answer in batch]
            tokens = np.argmax(runner.forward(spans), axis=1).tolist()
            going += [
                answer for answer, token in zip(batch, tokens, strict=True) if answer.take(token, stops)
            ]
        live = going


def batches(answers: Iterable[Answer], room: int) -> Iterable[list[Answer]]:
    batch: list[Answer] = []
    size = 0
    for answer in answers:
        if size + len(answer.fed) > room:
            yield batch
            batch, size = [], 0
        batch.append(answer)
        size += len(answer.fed)
    if batch:
        yield batch


class Trial:
    """All wordings on a group of cases: each case's first answer is written once, and shared."""

    def __init__(self, runner: Runner, plan: Plan) -> None:
        self.runner, self.plan = runner, plan
        self.stops = frozenset(plan.stops) | runner.info.end_tokens
        self.texts: dict[str, dict[str, str]] = defaultdict(dict)

    def run(self, group: Sequence[Planned]) -> None:
        firsts = [Answer(seq, 0, each.prompt, each.case.steers[0].after) for seq, each in enumerate(group)]
        write_all(self.runner, firsts, self.stops)
        for each, first in zip(group, firsts, strict=True):
            if len(first.said) < each.case.steers[0].after:
                print(f"{each.case.name}: the first answer ended after {len(first.said)} tokens.", flush=True)
        jobs = [(name, at) for name in (CONTROL, *self.plan.wordings) for at in range(len(group))]
        for begin in range(0, len(jobs), AT_ONCE):
            self._write(group, firsts, jobs[begin : begin + AT_ONCE])

    def _write(
        self, group: Sequence[Planned], firsts: Sequence[Answer], jobs: Sequence[tuple[str, int]]
    ) -> None:
        lasts: list[Answer] = []
        for number, (name, at) in enumerate(jobs):
            first, case, seq = firsts[at], group[at].case, GROUP + number
            self.runner.share(at, seq, first.length)
            if name == CONTROL:
                lasts.append(Answer(seq, first.length, first.fed, case.tokens))
            else:
                fed = [*first.fed, *group[at].steers[name][0]]
                lasts.append(Answer(seq, first.length, fed, self._tokens(case, 1)))
        write_all(self.runner, lasts, self.stops)
        seconds = []
        for (name, at), answer in zip(jobs, lasts, strict=True):
            if name != CONTROL and len(group[at].case.steers) > 1:
                fed = [token for token in answer.fed if token not in self.stops]
                again = Answer(
                    answer.seq, answer.length, [*fed, *group[at].steers[name][1]], group[at].case.tokens
                )
                seconds.append((name, at, again))
        write_all(self.runner, [answer for *_, answer in seconds], self.stops)
        said = {(name, at): answer for (name, at), answer in zip(jobs, lasts, strict=True)}
        said |= {(name, at): answer for name, at, answer in seconds}
        for (name, at), answer in said.items():
            text = b"".join(map(self.runner.token_bytes, answer.said)).decode("utf-8", "replace")
            self.texts[name][group[at].case.name] = text
            self.runner.trim(answer.seq, 0)

    @staticmethod
    def _tokens(case: Case, place: int) -> int:
        return case.steers[place].after if place < len(case.steers) else case.tokens


def run(plan: Plan, runner: Runner, out: Path) -> dict[str, dict[str, str]]:
    begun, trial = time.perf_counter(), Trial(runner, plan)
    for begin in range(0, len(plan.cases), GROUP):
        trial.run(plan.cases[begin : begin + GROUP])
        for seq in range(GROUP):
            runner.trim(seq, 0)
        out.write_text(json.dumps(trial.texts, ensure_ascii=False, indent=1), "utf-8")
        done = min(begin + GROUP, len(plan.cases))
        print(f"{done} of {len(plan.cases)} cases after {time.perf_counter() - begun:.0f} s", flush=True)
    return trial.texts


def open_runner(model: Path, device: str, gpu_folder: str, threads: int) -> Runner:
    if device == "cuda":
        from vivace.engine.runners.cuda import load

        return load.open_runner(
            model, load.GpuOptions(CONTEXT_TOKENS, folder=Path(gpu_folder) if gpu_folder else None)
        )
    from vivace.engine.runners.llamacpp import LlamaRunner

    return LlamaRunner(model, context_tokens=CONTEXT_TOKENS, threads=threads)


# ---- what came of it -------------------------------------------------------------------------------


def show(texts: dict[str, dict[str, str]]) -> None:
    """Return one line for each wording: steers obeyed by kind, tasks kept, held-out cases apart."""
    cases = {case.name: case for case in read_cases()}
    kinds = list(dict.fromkeys(case.kind for case in cases.values()))
    columns = [*kinds, "obeyed", "kept", "both", "held out:", "kept", "both"]
    print(f"{'wording':<22}" + "".join(f"{column:>10}" for column in columns))
    for name, answers in texts.items():
        print(f"{name:<22}" + _row(answers, cases, kinds))


def _row(answers: dict[str, str], cases: dict[str, Case], kinds: Sequence[str]) -> str:
    found: dict[str, list[bool]] = defaultdict(list)
    for name, text in answers.items():
        case = cases[name]
        is_obeyed, is_kept = passes(case.obeyed, text), passes(case.kept, text)
        part = "held " if case.held_out else ""
        found[part + "obeyed"].append(is_obeyed)
        found[part + "both"].append(is_obeyed and is_kept)
        if case.kept:
            found[part + "kept"].append(is_kept)
        if not case.held_out:
            found[case.kind].append(is_obeyed)
    keys = (*kinds, "obeyed", "kept", "both", "held obeyed", "held kept", "held both")
    return "".join(f"{f'{sum(found[key])}/{len(found[key])}':>10}" for key in keys)


def show_texts(texts: dict[str, dict[str, str]], wording: str) -> None:
    """Return every answer, with what was expected."""
    for case in read_cases():
        if (text := texts[wording].get(case.name)) is None:
            continue
        marks = f"{'obeyed' if passes(case.obeyed, text) else 'NOT OBEYED'}"
        marks += "" if not case.kept else ", kept" if passes(case.kept, text) else ", LOST"
        print(f"--- {case.name} ({marks}) {case.ask!r} … {[steer.text for steer in case.steers]}\n{text}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("prepare", "run", "show"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--model", type=Path, help="the GGUF file")
    parser.add_argument("--all-cases", action="store_true", help="those that are held out too (prepare)")
    parser.add_argument("--only", default="", help="names of wordings, with commas (prepare)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (run)")
    parser.add_argument("--gpu-folder", default="", help="where converted weights are kept (run)")
    parser.add_argument("--threads", type=int, default=2, help="on the CPU (run)")
    parser.add_argument("--texts", default="", help="a wording whose answers are shown (show)")
    options = parser.parse_args()
    if options.what == "prepare":
        only = [name for name in options.only.split(",") if name]
        plan = prepare(options.model, has_all=options.all_cases, only=only)
        options.files[0].write_bytes(msgspec.json.encode(plan))
        print(f"{len(plan.cases)} cases, {len(plan.wordings)} wordings")
    elif options.what == "run":
        plan = msgspec.json.decode(options.files[0].read_bytes(), type=Plan)
        show(
            run(
                plan,
                open_runner(options.model, options.device, options.gpu_folder, options.threads),
                options.files[1],
            )
        )
    else:
        texts: dict[str, Any] = json.loads(options.files[0].read_text("utf-8"))
        show_texts(texts, options.texts) if options.texts else show(texts)


if __name__ == "__main__":
    main()

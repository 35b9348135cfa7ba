"""`python -m vivace.training`: make data, train an adapter, answer with it, judge the answers.

Owns the commands and what lies in their folders. Every command goes on with what earlier ones left in files:
data is made and answers are judged on one machine, training may happen on another.
"""

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from vivace.errors import VivaceError
from vivace.training.examples import Example, Examples, load_examples, save_examples, with_prefix
from vivace.training.sft import ADAPTER, SftPlan, Training

TRAIN, DEV, PLAIN, QUESTIONS, FACTS, REPORT = (
    *("train.pt", "dev.pt", "plain.pt", "questions.pt", "facts.json", "report.json"),
)
ASKED = {"commit": 200, "mutation": 150, "edit": 150}  # of the dev projects
MOST_TOKENS = 512  # of an answer that is measured
ANSWERED_AT_ONCE = 512
PLAIN_TOKENS, PLAIN_TEXTS = 1024, 128  # of code that no question is asked about


# ---- prepare: needs the model's vocabulary, not its weights ----------------------------------------


def prepare(options: argparse.Namespace) -> None:
    """Write examples, held-out examples, plain code and questions as tokens, and the report."""
    from vivace.models.families.choose import family_for
    from vivace.models.tokenizer import GgufTokenizer
    from vivace.training.data.decontaminate import read_guard
    from vivace.training.data.plan import DataPlan
    from vivace.training.data.prepare import Report, make_examples, make_pairs

    tokenizer = GgufTokenizer(options.model)
    family = family_for(tokenizer, str(options.model))
    plan = DataPlan(**{each.name: getattr(options, each.name) for each in fields(DataPlan)})
    report = Report()
    guard = read_guard(options.evals)
    pairs = list(make_pairs(options.commits, guard, plan, report, options.packages))
    found = make_examples(pairs, tokenizer, family, plan, report)
    _save_tasks(pairs, found["train"], tokenizer, family, options.out)
    save_examples(found["train"], options.out / TRAIN)
    save_examples(found["dev"], options.out / DEV)
    save_examples(_plain(pairs, tokenizer), options.out / PLAIN)
    facts = _save_questions(pairs, tokenizer, family, options)
    (options.out / FACTS).write_text(json.dumps(facts))
    (options.out / REPORT).write_text(json.dumps(report.as_json(), indent=1))
    print(json.dumps(report.as_json(), indent=1))


def _plain(pairs: Iterable[Any], tokenizer: Any) -> Examples:
    """Return code of the held-out projects as it is: what an adapter must not forget."""
    files = {(pair.repo, pair.path): pair.file for pair in pairs if pair.split == "dev"}
    names = sorted(files)
    random.Random(1).shuffle(names)
    rows: list[Example] = []
    for name in names:
        tokens = tokenizer.encode(files[name])[:PLAIN_TOKENS]
        if len(tokens) == PLAIN_TOKENS and len(rows) < PLAIN_TEXTS:
            rows.append(Example(tuple(tokens[:1]), tuple(tokens[1:]), " ".join(name), name[0], "plain"))
    return Examples((), tuple(rows))


def _asked(pairs: Iterable[Any]) -> list[Any]:
    """Return the held-out pairs that are answered, too."""
    from vivace.training.data.pairs import Pair

    asked: list[Pair] = []
    for kind, most in ASKED.items():
        found: list[Pair] = [pair for pair in pairs if pair.split == "dev" and pair.kind == kind]
        found = [pair for pair in found if len(pair.after) < 3 * MOST_TOKENS]
        random.Random(1).shuffle(found)
        asked += found[:most]
    return asked


def _save_tasks(pairs: Iterable[Any], examples: Examples, tokenizer: Any, family: Any, out: Path) -> None:
    """Write what answers of the model's own are judged by, for each training example in its order."""
    from vivace.training.data.pairs import write_pair
    from vivace.training.data.prepare import tokens_of
    from vivace.training.own import TASKS, Task

    by_name = {pair.name: pair for pair in pairs}
    with (out / TASKS).open("wb") as file:
        for pair in (by_name[row.name] for row in examples.rows):
            request, _ = write_pair(pair)
            _, answer = tokens_of(pair, tokenizer, family)
            told = (request.fence, request.opening, pair.before, pair.after, answer.old)
            file.write(msgspec.json.encode(Task(pair.name, pair.kind, *told)) + b"\n")


def _save_questions(
    pairs: Sequence[Any], tokenizer: Any, family: Any, options: argparse.Namespace
) -> dict[str, Any]:
    from vivace.training.data.prepare import entries_of
    from vivace.training.questions import pair_question, task_questions

    asked = _asked(pairs)
    questions = [pair_question(pair) for pair in asked]
    for name in ("humanevalfix", "humanevalfix-doc", "editeval"):
        questions += task_questions(name, options.evals)
    prefix, prompts = with_prefix([family.render(entries_of(each.request.messages)) for each in questions])
    rows = [
        Example(prompt, (), question.name, question.set_name, question.set_name)
        for prompt, question in zip(prompts, questions, strict=True)
    ]
    save_examples(Examples(prefix, tuple(rows)), options.out / QUESTIONS)
    (options.out / "asked.jsonl").write_bytes(b"".join(msgspec.json.encode(pair) + b"\n" for pair in asked))
    pieces = [tokenizer.token_bytes(token) for token in range(tokenizer.size)]
    fences = [token for token, piece in enumerate(pieces) if b"```" in piece]
    return {"stops": sorted({*fences, *tokenizer.end_tokens})}


# ---- train, answer: need the weights, no vocabulary but the bytes of tokens ------------------------


def train(options: argparse.Namespace) -> None:
    """Train an adapter, or go on with it, and measure what it does to held-out examples."""
    from vivace.training.adapter import Adapter
    from vivace.training.decoder import open_decoder
    from vivace.training.measuring import held_out_loss

    examples = load_examples(options.data / TRAIN)
    if options.kinds:
        examples = examples.of_kinds(*options.kinds.split(","))
    held_out = {name: load_examples(options.data / name) for name in (DEV, PLAIN)}
    plan = plan_of(options)
    decoder = open_decoder(options.model, options.device)
    training = Training(decoder, examples, plan, options.out)

    def measured(step: int, adapter: Adapter) -> dict[str, Any]:
        figures = {
            name.removesuffix(".pt"): held_out_loss(decoder, adapter, each, against_base=True)
            for name, each in held_out.items()
        }
        return {"measured": figures, "at": step}

    training.run(options.seconds, measured)
    print("done" if training.is_done else f"stopped at step {training.step}: the same command goes on")


def plan_of(options: argparse.Namespace) -> SftPlan:
    return SftPlan(**{each.name: getattr(options, each.name) for each in fields(SftPlan)})


def answer(options: argparse.Namespace) -> None:
    """Answer the questions with an adapter, or with the base alone, into a file."""
    from vivace.training.adapter import load_adapter
    from vivace.training.decoder import open_decoder

    decoder = open_decoder(options.model, options.device)
    adapter = None
    if options.adapter:
        adapter = load_adapter(options.adapter, decoder.shape, decoder.weights, decoder.device)
    answer_questions(decoder, adapter, options.data, options.model, options.out, options.most)


def answer_questions(
    decoder: Any, adapter: Any, data: Path, model: Path, out: Path, most: int = 0, until: float = float("inf")
) -> None:
    """Write an answer a line. `most`: of each set, for a try."""
    from vivace.training.answering import write_answers

    questions = load_examples(data / QUESTIONS)
    stops, text_of = open_words(decoder, data, model)
    names = dict.fromkeys(row.kind for row in questions.rows)
    rows = [
        row
        for name in names
        for row in [each for each in questions.rows if each.kind == name][: most or None]
    ]
    prompts = [questions.prefix + row.prompt for row in rows]
    said = write_answers(decoder, adapter, prompts, stops, MOST_TOKENS, at_once=ANSWERED_AT_ONCE, until=until)
    with out.open("w") as file:
        for row, tokens in zip(rows, said, strict=True):
            was_cut = not tokens or tokens[-1] not in stops
            told = {"set_name": row.kind, "name": row.name, "text": text_of(tokens), "was_cut": was_cut}
            file.write(json.dumps(told) + "\n")


def open_words(
    decoder: Any, data: Path, model: Path
) -> tuple[frozenset[int], Callable[[Sequence[int]], str]]:
    """Return the tokens that end an answer, and what makes text of tokens."""
    from vivace.engine.runners.cuda.model.vocabulary import read_vocabulary

    words = read_vocabulary(model, decoder.shape.vocab)
    stops = frozenset(json.loads((data / FACTS).read_text())["stops"])
    return stops, lambda tokens: b"".join(map(words.token_bytes, tokens)).decode("utf-8", "replace")


# ---- judge: needs the sandbox ----------------------------------------------------------------------


def judge(options: argparse.Namespace) -> None:
    """Judge files of answers to the same questions; compare each with the first."""
    from vivace.training.judging import Answered, Comparison, Verdict, compare

    verdicts: list[dict[str, list[Verdict]]] = []
    known: dict[tuple[str, str], bool] = {}
    for path in options.answers:
        said = [msgspec.json.decode(line, type=Answered) for line in path.read_bytes().splitlines()]
        verdicts.append(asyncio.run(_judged(said, options, known)))
        kept = path.with_suffix(".verdicts.json")
        kept.write_bytes(msgspec.json.encode(verdicts[-1]))
        for name, found in verdicts[-1].items():
            counts = {
                "of": len(found),
                "right": sum(each.is_right for each in found),
                "unchanged": sum(each.is_unchanged for each in found),
                "refused": sum(each.is_refused for each in found),
            }
            print(path.stem, name, json.dumps(counts))
            if len(verdicts) > 1 and name in verdicts[0]:
                told: Comparison = compare(verdicts[0][name], found)
                print("   against the first:", msgspec.json.encode(told).decode())


async def _judged(
    said: Sequence[Any], options: argparse.Namespace, known: dict[tuple[str, str], bool]
) -> dict[str, Any]:
    from vivace.training.data.pairs import Pair
    from vivace.training.judging import judge_pairs, judge_tasks
    from vivace.training.questions import SETS_OF_PAIRS, pair_question, task_questions

    found: dict[str, Any] = {}
    for name in dict.fromkeys(each.set_name for each in said):
        answers = {each.name: each for each in said if each.set_name == name}
        if name in SETS_OF_PAIRS.values():
            lines = (options.data / "asked.jsonl").read_bytes().splitlines()
            pairs = [msgspec.json.decode(line, type=Pair) for line in lines]
            asked = {(question := pair_question(pair)).name: (question, pair) for pair in pairs}
            asked = {key: each for key, each in asked.items() if key in answers}
            afters = {key: _after(pair) for key, (_, pair) in asked.items()}
            found[name] = judge_pairs(name, [question for question, _ in asked.values()], answers, afters)
        else:
            questions = [each for each in task_questions(name, options.evals) if each.name in answers]
            found[name] = await judge_tasks(name, options.evals, questions, answers, known)
    return found


def _after(pair: Any) -> str:
    lines = pair.file.split("\n")
    return "\n".join([*lines[: pair.first_line - 1], pair.after.removesuffix("\n"), *lines[pair.last_line :]])


# ---- the command line ------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    from vivace.training.data.plan import DataPlan

    parser = argparse.ArgumentParser(prog="python -m vivace.training", description=__doc__)
    commands = parser.add_subparsers(required=True)

    def command(run: Any, *paths: str) -> argparse.ArgumentParser:
        made = commands.add_parser(run.__name__, help=run.__doc__)
        made.set_defaults(run=run)
        for name in paths:
            made.add_argument(f"--{name}", type=Path, required=True)
        return made

    made = command(prepare, "model", "evals", "out")
    made.add_argument("--commits", type=Path, help="folder of mined commits")
    made.add_argument("--packages", type=Path, help="folder of wheels")
    for each in fields(DataPlan):
        made.add_argument(f"--{each.name.replace('_', '-')}", type=int, default=each.default)
    made = command(train, "model", "data", "out")
    made.add_argument("--kinds", default="", help="of examples, with commas between; all by default")
    made.add_argument("--seconds", type=float, default=float("inf"))
    made.add_argument("--device", default="cuda")
    for each in fields(SftPlan):
        made.add_argument(f"--{each.name.replace('_', '-')}", type=type(each.default), default=each.default)
    made = command(answer, "model", "data", "out")
    made.add_argument("--adapter", type=Path, help=f"such as {ADAPTER} in the folder of a run")
    made.add_argument("--device", default="cuda")
    made.add_argument("--most", type=int, default=0, help="questions of each set; 0: all")
    made = command(judge, "data", "evals")
    made.add_argument("answers", type=Path, nargs="+")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(words)
    try:
        options.run(options)
    except VivaceError as error:
        print(f"{error.message} {error.hint}".strip(), file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Are the edits that `vivace bench gpu --shape` plays as hard as real ones? By simulation, without a GPU.

    .venv/bin/python benchmarks/engine/played_edits.py [--data FOLDER] [--model NAME] [--changes]

The model is taken to write exactly what the author of a commit wrote, the engine's own code drafts, and a
pass costs what a table says. Compares the commits with the played edits (`vivace.bench.gpu.played`), and with
those that were played before, which had every 24th token changed. `--changes` prints those of each commit.
"""

import argparse
import difflib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vivace.agent.edits.apply.source import source_from_bytes
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.write.rewrite import rewrite_request
from vivace.bench.gpu.material import EDITS
from vivace.bench.gpu.played import COMMITS, Change, new_tokens, old_text
from vivace.bench.rows import Row, changed_lines, make_case, read_rows, smallest_unit
from vivace.config import load_settings
from vivace.engine.common_length import common_length
from vivace.engine.speculation import Drafter, History, StepCosts
from vivace.models.download import ensure
from vivace.models.families.base import Family
from vivace.models.families.choose import family_for
from vivace.models.progress import Silent
from vivace.models.tokenizer import Tokenizer, load_tokenizer

VOCAB, CONTEXT, SEED = 151_936, 1024, 1
EVERY, EVERY_TOKENS, EVERY_EDITS = 24, 400, 4  # of the edits that were played before
# ms of a pass by its tokens on an H200, about as docs/gpu-notes.md has them; no draft is longer than these.
COSTS = {
    "1.5B, 8-bit": {1: 0.63, 2: 0.66, 4: 0.75, 8: 0.95, 16: 1.4, 32: 2.2},
    "7B, 8-bit": {1: 2.0, 2: 2.1, 4: 2.4, 8: 2.9, 16: 4.45},
    "30B-A3B, 4-bit": {1: 1.28, 2: 1.69, 4: 2.32, 8: 3.17, 16: 5.59},
    "14B, 8-bit": {1: 3.85, 8: 7.6},
}


class Played(NamedTuple):
    log: list[int]
    prediction: list[int]
    text: list[int]


def commit(row: Row, tokenizer: Tokenizer, family: Family) -> Played | None:
    """Return a row as the bench takes it, with the new text of its unit as the commit has it."""
    case = make_case(row, tokenizer, family)
    if case is None:
        return None
    before = source_from_bytes(Path(row.path), row.before.encode())
    after = source_from_bytes(Path(row.path), row.after.encode())
    units = list_units(before, language_for(before.path))
    unit = smallest_unit(units, *changed_lines(row.before, row.after))
    assert unit is not None
    grown = len(row.after.splitlines()) - len(row.before.splitlines())
    new = after.text_of(unit.first_line, unit.last_line + grown)
    request = rewrite_request(before, units, unit, row.instruction)
    written = tokenizer.encode(new.removeprefix(request.opening) + request.fence)
    return Played(case.prompt, case.prediction, written if new.startswith(request.opening) else [])


def changes_of(edit: Played) -> list[Change]:
    changes: list[Change] = []
    matcher = difflib.SequenceMatcher(None, edit.prediction, edit.text, autojunk=False)
    for what, old, old_end, new, new_end in matcher.get_opcodes():
        if what == "equal":
            changes.append(Change(new_end - new))
        else:
            last = changes.pop() if changes else Change(0)
            changes.append(Change(last.kept, old_end - old, new_end - new))
    return changes


def random_text(count: int, chance: random.Random) -> list[int]:
    return [chance.randrange(VOCAB) for _ in range(count)]


def played_now(chance: random.Random) -> list[Played]:
    edits = []
    for number, changes in enumerate(COMMITS):
        said = random_text(new_tokens(changes), chance)
        edits.append(Played(random_text(CONTEXT, chance), old_text(said, changes, VOCAB, number), said))
    return edits


def played_before(chance: random.Random) -> list[Played]:
    edits = []
    for _ in range(EVERY_EDITS):
        said = random_text(EVERY_TOKENS, chance)
        wrong = [(token + (at % EVERY == EVERY - 1)) % VOCAB for at, token in enumerate(said)]
        edits.append(Played(random_text(CONTEXT, chance), wrong, said))
    return edits


def replay(edit: Played, points: dict[int, float]) -> tuple[int, float]:
    """Return the passes and milliseconds of a turn that says the text."""
    costs, history = StepCosts(points), History(edit.log)
    drafter = Drafter(costs, history, edit.prediction)
    done, passes, spent_ms = 0, 0, 0.0
    while done < len(edit.text):
        draft = drafter.propose(min(max(points), len(edit.text) - done) - 1)
        rest = edit.text[done : done + len(draft) + 1]
        said = rest[: common_length(draft, rest) + 1]
        history.extend(said)
        drafter.observe(said)
        done, passes, spent_ms = done + len(said), passes + 1, spent_ms + costs.ms(len(draft) + 1)
    return passes, spent_ms


def total(edits: Sequence[Played], points: dict[int, float]) -> str:
    passes, spent_ms = (sum(column) for column in zip(*(replay(each, points) for each in edits), strict=True))
    tokens = sum(len(each.text) for each in edits)
    return f"{tokens / passes:>12.2f}{tokens / spent_ms * 1e3:>8.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with commit_edits.jsonl")
    parser.add_argument("--model")
    parser.add_argument("--changes", action="store_true")
    args = parser.parse_args()
    settings = load_settings().having(model=args.model)
    path = ensure(settings, settings.model, Silent())
    tokenizer = load_tokenizer(str(path), path)
    family = family_for(tokenizer, str(path))
    found = read_rows(args.data)
    taken = [edit for row in found.rows if (edit := commit(row, tokenizer, family))][:EDITS]
    commits = [edit for edit in taken if edit.text]  # the rest change the line that the answer opens with
    if args.changes:
        for edit in commits:
            print(len(edit.text), *(tuple(change) for change in changes_of(edit)))
        return
    chance = random.Random(SEED)
    print(f"{len(commits)} of {found.source}; tokens as in {settings.model}; seed {SEED}")
    print(f"{'tokens a pass, tok/s':<18}{'commits':>20}{'played':>20}{'every 24th':>20}")
    now, before = played_now(chance), played_before(chance)
    for name, points in COSTS.items():
        print(f"{name:<18}" + "".join(total(edits, points) for edits in (commits, now, before)))


if __name__ == "__main__":
    main()

"""What `vivace bench gpu` reads: tokens of real code, and real edits, already tokenized.

Owns the file, so that a machine without a tokenizer can run the bench: `make` it where there is one, `save`
it, and name it with --material there. Does not run anything.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from vivace.errors import FileProblem

CODE_TOKENS = 20_480
EDITS = 30
EDIT_TOKENS = 500  # of an answer at most
STEER = "Stop. Write it as one function with type hints instead, and do not explain anything, please."


class Edit(msgspec.Struct, frozen=True):
    """A unit to be rewritten, as the agent asks for it."""

    name: str
    prompt: list[int]
    prediction: list[int]
    stop: list[str]
    max_tokens: int = EDIT_TOKENS


class Material(msgspec.Struct, frozen=True):
    source: str  # where the edits are from, for people
    code: list[int]  # at least CODE_TOKENS
    steer: list[int]
    edits: list[Edit]


def make_material(path: Path, folder: Path | None) -> Material:
    """Tokenize code and edits for the model at `path`: rows of `folder`, or those that ship."""
    from vivace.bench.rows import choose_cases, read_rows
    from vivace.models.families.base import Message, OutputSpec
    from vivace.models.families.choose import family_for
    from vivace.models.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(str(path), path)
    template = family_for(tokenizer, str(path))
    rows = read_rows(folder)
    cases = choose_cases(rows.rows, tokenizer, template, EDITS)
    if not cases:
        raise FileProblem(f"No edit can be taken from {rows.source}.", "Name another folder with --data.")
    steer = template.render([Message("user", STEER)], after=cases[0].prompt)
    return Material(
        source=f"{len(cases)} of {rows.source}",
        code=_code(tokenizer.encode("\n\n".join(row.before for row in rows.rows))),
        steer=steer + template.answer(cases[0].prompt + steer, OutputSpec()),
        edits=[Edit(case.name, case.prompt, case.prediction, case.stop) for case in cases],
    )


def _code(tokens: Sequence[int]) -> list[int]:
    """Repeat the code until there is enough of it."""
    return (list(tokens) * (CODE_TOKENS // max(1, len(tokens)) + 1))[: 2 * CODE_TOKENS]


def save_material(material: Material, file: Path) -> None:
    file.write_bytes(msgspec.json.encode(material))


def load_material(file: Path) -> Material:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Material)
    except (OSError, msgspec.MsgspecError) as error:
        raise FileProblem(
            f"{file} cannot be read: {error}.", "Make it with benchmarks/gpu_lease.py."
        ) from error

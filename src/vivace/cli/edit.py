"""`vivace edit` and `vivace undo`.

Owns the conversation with the user about one edit: watch it grow, then y, n or e. Does not own the edit
itself (`agent.edits`) nor the drawing (`screen`).
"""

from enum import StrEnum
from typing import Annotated

import typer


class Effort(StrEnum):
    low = "low"
    medium = "medium"
    high = "high"
    xhigh = "xhigh"


Target = Annotated[str, typer.Argument(metavar="PATH[:NAME|:L1-L2]", help="The file, and what in it.")]
Instruction = Annotated[str, typer.Argument(help="What to change, in plain words.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")]
DiffOnly = Annotated[bool, typer.Option("--diff", help="Show the change, write nothing.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Events for programs, one a line; writes only with --yes.")
]
EffortLevel = Annotated[Effort, typer.Option("--effort", help="How much the model may think (not used yet).")]
ModelName = Annotated[
    str | None, typer.Option("--model", help="A name from `vivace models`, or a .gguf file.")
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show every stage of the time.")]


def edit(
    target: Target,
    instruction: Instruction,
    yes: Yes = False,
    diff: DiffOnly = False,
    as_json: AsJson = False,
    effort: EffortLevel = Effort.medium,
    model: ModelName = None,
    verbose: Verbose = False,
) -> int:
    """Change one function, class or piece of a file."""
    from vivace.cli.editing import Editing, Mode
    from vivace.config import load_settings

    del effort
    mode = Mode(
        may_write=yes and not diff, asks=not (yes or diff or as_json), as_json=as_json, verbose=verbose
    )
    return Editing(load_settings().having(model=model), mode).run(target, instruction)


def undo(
    path: Annotated[str | None, typer.Argument(help="Take back the last edit of this file.")] = None,
) -> None:
    """Take the last edit back."""
    from pathlib import Path

    from vivace.agent.edits.journal import Journal
    from vivace.config import load_settings

    entry = Journal(load_settings().state_dir / "undo").undo(Path(path) if path else None)
    typer.echo(f"Took back: {entry.instruction} ({entry.path})")

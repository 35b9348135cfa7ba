"""A workflow as its file says it: inputs, steps, and a check a step. Parsed strictly, before anything runs.

Owns the format, TOML: steps are tables, Python reads it without another package, and trust is asked with the
file's own text. A file that names something unknown is refused. Does not find files (`finding`) nor run them.
"""

import re
import tomllib
from typing import Literal

import msgspec

from vivace.agent.workflows.filling import names_in
from vivace.errors import UsageError

Where = Literal["new", "replace", "top", "end"]
KINDS = ("edit", "ask", "run", "review", "for_each", "parallel")
MAX_STEPS = 100
MAX_TRIES = 5
_NAME = re.compile(r"[a-z][a-z0-9_]*")


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the user gives as key=value. Without a default it must be given."""

    description: str = ""
    default: str | None = None


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a step is good. A change of a step that is not is taken back."""

    run: str = ""  # a command that must succeed, in the sandbox
    says: str = ""  # a regular expression that the step's output must have


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"save_as": "as"}):
    """One step. It has exactly one of the kinds."""

    name: str = ""  # shown instead of what it does
    edit: str | None = None  # an instruction for `files`
    ask: str | None = None  # a question about `files`
    run: str | None = None  # a command, in the sandbox; values are quoted
    review: str | None = None  # a question about the change so far, answered yes or no
    for_each: str | None = None  # lines of a text: `steps` run for each of them, named `item`
    parallel: tuple["Step", ...] = ()  # questions, reviews and commands that run at once
    files: tuple[str, ...] = ()  # PATH or PATH:NAME
    item: str = "item"
    steps: tuple["Step", ...] = ()
    save_as: str = ""  # later steps know the output by this name
    to: str = ""  # a file that the output of `ask` or `run` is written into
    where: Where = "new"  # in that file: a new one, in its place, after its title, or behind its end
    is_code: bool = False  # of an answer, take the first block of code only
    check: Check = Check()
    tries: int = 1  # of `edit` and `ask`: after a check that fails, the model is told and tries again
    on_fail: Literal["stop", "continue"] = "stop"
    when: str = ""  # the step is passed over if this is empty; "": always run

    @property
    def kind(self) -> str:
        return next(kind for kind in KINDS if getattr(self, kind) not in (None, ()))

    @property
    def title(self) -> str:
        text = getattr(self, self.kind)
        return self.name or (f"{self.kind}: {text}" if isinstance(text, str) else self.kind)


class Workflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    description: str
    steps: tuple[Step, ...]
    inputs: dict[str, Input] = {}


def parse_workflow(name: str, text: str) -> Workflow:
    """Return the workflow. Raise `UsageError` that says what is wrong with it, and where."""
    try:
        workflow = msgspec.convert(tomllib.loads(text), Workflow)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise _wrong(name, str(error)) from error
    known = set[str]()
    for key, given in workflow.inputs.items():
        if not _NAME.fullmatch(key):
            raise _wrong(name, f"{key!r} cannot be the name of an input")
        _check_names(name, given.default or "", known, f"inputs.{key}")
        known.add(key)
    _check_steps(name, workflow.steps, known, "")
    return workflow


def _check_steps(name: str, steps: tuple[Step, ...], known: set[str], before: str) -> None:
    if not 0 < len(steps) <= MAX_STEPS:
        place = f"step {before}" if before else "it"
        raise _wrong(name, f"{place} must have 1 to {MAX_STEPS} steps")
    for number, step in enumerate(steps, 1):
        _check_step(name, step, known, f"{before}{number}")
        if step.save_as:
            known.add(step.save_as)


def _check_step(name: str, step: Step, known: set[str], key: str) -> None:
    kinds = [kind for kind in KINDS if getattr(step, kind) not in (None, ())]
    if len(kinds) != 1:
        raise _wrong(name, f"step {key} must have exactly one of {', '.join(KINDS)}")
    texts = [step.edit, step.ask, step.run, step.review, step.for_each, step.when, step.to, *step.files]
    for text in [*texts, step.check.run]:
        _check_names(name, text or "", known, f"step {key}")
    faults = {
        "as must be a name": step.save_as and not _NAME.fullmatch(step.save_as),
        "item must be a name": not _NAME.fullmatch(step.item),
        "edit needs files": step.edit is not None and not step.files,
        "to belongs to ask and run": step.to and step.kind not in ("ask", "run"),
        "steps belong to for_each, which needs them": bool(step.steps) != (step.kind == "for_each"),
        f"tries must be 1 to {MAX_TRIES}": not 1 <= step.tries <= MAX_TRIES,
        "check.says is no regular expression": not _is_pattern(step.check.says),
    }
    for fault, is_so in faults.items():
        if is_so:
            raise _wrong(name, f"step {key}: {fault}")
    if step.kind == "for_each":
        _check_steps(name, step.steps, known | {step.item}, f"{key}.")
    for number, inner in enumerate(step.parallel, 1):
        _check_step(name, inner, known, f"{key}.{number}")
        if inner.kind not in ("ask", "review", "run") or inner.to:
            raise _wrong(name, f"step {key}.{number}: only ask, review and run without `to` can be parallel")
        known |= {inner.save_as} if inner.save_as else set()


def _check_names(name: str, text: str, known: set[str], place: str) -> None:
    if unknown := names_in(text) - known:
        raise _wrong(name, f"{place} uses {{{min(unknown)}}}, which nothing before it gives")


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True


def _wrong(name: str, problem: str) -> UsageError:
    return UsageError(
        f"The workflow {name} cannot be understood: {problem}.", "docs/guides/workflows.md has the format."
    )

"""From a workflow's name and KEY=VALUE pairs to what runs.

Owns reading the pairs, what a list says of a workflow, and which inputs still have no value. Does not own
where workflows are (`finding`), nor the run (`running`).
"""

from collections.abc import Sequence
from pathlib import Path

from vivace.agent.events.task import WorkflowStarted
from vivace.agent.workflows.finding import Found, find_workflow
from vivace.agent.workflows.running import with_defaults
from vivace.config import Settings
from vivace.errors import UsageError


def begin_workflow(settings: Settings, folder: Path, name: str, given: Sequence[str]) -> WorkflowStarted:
    """Return what runs. Raise UsageError or ProjectNotTrusted if it cannot."""
    found = find_workflow(settings, folder, name)
    inputs = with_defaults(name, found.parsed(), _pairs(given))
    return WorkflowStarted(name=name, text=found.text, inputs=inputs)


def about(found: Found) -> str:
    """Return what it is for, or why it cannot be run, in a line."""
    if not found.is_usable:
        return "not trusted: see `vivace trust`"
    try:
        return " ".join(found.parsed().description.split())
    except UsageError as error:
        return error.message


def wanted_inputs(found: Found) -> list[str]:
    """Return the inputs that have no default."""
    return [key for key, wanted in found.parsed().inputs.items() if wanted.default is None]


def _pairs(given: Sequence[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    if bad := [key for key, sign, _ in pairs if not sign]:
        raise UsageError(f"{bad[0]!r} is not KEY=VALUE.", "As in: rename old=a new=b")
    return {key: value for key, _, value in pairs}

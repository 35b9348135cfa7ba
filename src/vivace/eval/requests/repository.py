"""Whole repository tasks: a problem as people file it, a repository at a commit, and the tests that judge.

Owns the folder's form: `tasks.jsonl`, and `archives/ID.tar.gz` with each tree. Such folders hold other
people's code and are no part of this repository.
"""

from pathlib import Path

import msgspec

from vivace.errors import FileProblem
from vivace.eval.requests.requests import Request, Tests


class _Row(msgspec.Struct, frozen=True):
    id: str
    statement: str
    python_packages: list[str]
    test_command: str
    test_files: dict[str, str | None]
    fail_to_pass: list[str]
    pass_to_pass: list[str]
    source_patch: str


def read_repository_tasks(folder: Path) -> list[Request]:
    """Read the tasks of a folder. Their archives are read when they are needed."""
    file = folder / "tasks.jsonl"
    try:
        rows = [msgspec.json.decode(line, type=_Row) for line in file.read_bytes().splitlines() if line]
    except (OSError, msgspec.MsgspecError) as error:
        raise FileProblem(
            f"{file} cannot be read: {error}.", "Name a folder with tasks.jsonl and archives/: --tasks."
        ) from error
    return [_request(row, folder) for row in rows]


def _request(row: _Row, folder: Path) -> Request:
    judged_by = Tests(
        row.test_command,
        tuple(row.python_packages),
        row.test_files,
        tuple(row.fail_to_pass),
        tuple(row.pass_to_pass),
    )
    archive = folder / "archives" / f"{row.id}.tar.gz"
    return Request(row.id, row.statement, archive, row.source_patch, judged_by)

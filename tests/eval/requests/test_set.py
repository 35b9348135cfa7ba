"""The set of requests: what is in it, and that its references pass where the unchanged tree fails."""

import re
from pathlib import Path

import pytest

from tests.sandboxes import needs_sandbox
from vivace.eval.requests.places import changed_lines
from vivace.eval.requests.plan import Kept, RequestsPlan, fetch_trees, read_set
from vivace.eval.requests.proof import prove
from vivace.eval.requests.requests import read_projects, read_requests

NOT_OURS = {"schedule", "python-slugify", "humanize", "itsdangerous", "bottle"}


def test_there_are_enough_requests_about_enough_projects() -> None:
    """60 or more, on six projects or more, none of them of another set; two of three name no file."""
    requests = read_requests(Path())
    projects = {project.package for project in read_projects()}
    assert len(requests) >= 60
    assert len({each.name for each in requests}) == len(requests)
    assert len(projects) >= 6
    assert not projects & NOT_OURS
    named = [each for each in requests if re.search(r"\w\.py\b", each.text)]
    assert 0.25 <= len(named) / len(requests) <= 0.4
    held_out = sum(each.is_held_out for each in requests)
    assert 0.4 <= held_out / len(requests) <= 0.6


def test_every_reference_changes_code_of_its_project() -> None:
    """One or two files of Python, and no test."""
    for request in read_requests(Path()):
        names = list(changed_lines(request.patch))
        assert 1 <= len(names) <= 2, request.name
        assert all(name.endswith(".py") and "test" not in name for name in names), request.name


@needs_sandbox
@pytest.mark.parametrize(
    "part",
    [
        pytest.param("jmespath/keys-sorted", id="one request"),
        pytest.param("", id="all", marks=pytest.mark.thorough),
    ],
)
async def test_references_pass_where_unchanged_trees_fail(
    part: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of the source packages that pip fetches: what works before works after, and what was asked is new."""
    kept = Kept(tmp_path_factory.mktemp("evals"))
    requests = [each for each in read_set(kept) if part in each.name]
    fetch_trees(requests, kept, print)
    found = await prove(RequestsPlan("requests", "none", (), tuple(requests)))
    assert found == {"references_that_fail": [], "unchanged_that_pass": []}

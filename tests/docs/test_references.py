"""Everything that the documentation names is in the tree."""

from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.docs.references import dead_references

PAGES = sorted(
    [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")], key=lambda page: page.as_posix()
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_what_a_page_names_exists(page: Path) -> None:
    """Links, paths, dotted names and names of the code lead to something."""
    assert dead_references(page) == []


def test_the_index_has_every_guide() -> None:
    """A guide that nobody finds is none."""
    guides = REPOSITORY / "docs" / "guides"
    index = (guides / "README.md").read_text("utf-8")
    assert [page.name for page in guides.glob("*.md") if f"({page.name})" not in index] == ["README.md"]


@pytest.mark.parametrize(
    "reference",
    [
        "[a page](docs/nowhere.md)",
        "[a heading](README.md#no-such-heading)",
        "`src/vivace/nothing.py`",
        "`engine/loop/nothing.py`",
        "`config.py: no_such_function`",
        "`vivace.config.NoSuchThing`",
        "`vivace.nothing`",
        "`Settings.no_such_field`",
        "`NoSuchClassAnywhere`",
        "`no_such_function_anywhere`",
        "```\n.venv/bin/python benchmarks/nothing.py\n```",
    ],
)
def test_a_dead_reference_is_found(tmp_path: Path, reference: str) -> None:
    """One that leads nowhere is told as it stands on the page."""
    page = tmp_path / "page.md"
    page.write_text(f"See {reference} for more.\n" if "```" not in reference else reference)
    assert len(dead_references(page)) == 1


@pytest.mark.parametrize(
    "reference",
    [
        "`src/vivace/config.py`",
        "`engine/loop/worker.py`",
        "`config.py: load_settings`",
        "`vivace.config.Settings`",
        "`Settings.keep_days`",
        "`load_settings`",
        "`~/.config/vivace/config.toml`",
        "`vivace edit --yes`",
        "`benchmarks/NAME.py`",
        "[a place](https://example.org/nothing.md)",
        "```\n.venv/bin/python benchmarks/engine/threads.py\n```",
    ],
)
def test_a_live_reference_is_left_alone(tmp_path: Path, reference: str) -> None:
    """So are placeholders, the user's own files and other sites."""
    page = tmp_path / "page.md"
    page.write_text(f"See {reference} for more.\n" if "```" not in reference else reference)
    assert dead_references(page) == []

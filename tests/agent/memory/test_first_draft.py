"""A first AGENTS.md: found in the repository, the same each time, never over one that is there."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.memory.build_files import _READERS, ProjectFacts, read_facts
from vivace.agent.memory.first_draft import check_absent, draft, proposed
from vivace.errors import FileProblem

CART = """class Cart:
    pass


def total(cart):
    return 0
"""
EXPECTED = """# shop

Sells things.

## Code

- Languages: Python (2 files), Bash (1 file), JavaScript (1 file).
- Lines have at most 99 characters.

## Build and test

- `./check`
- `make test` (Makefile)
- `python -m pytest` (pyproject.toml)
- `ruff check .` (pyproject.toml)
- `npm run build` (package.json)

## Layout

- top level: 1 file
- `src/`: 1 file; `start`
- `src/shop/`: 1 file; `Cart`, `total`
- `tests/`: 1 file
"""
STRANGE = st.text(max_size=200) | st.sampled_from(['{"scripts": 3}', "[tool.ruff]", "[tool]\nruff = 1"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "src" / "shop").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "src" / "shop" / "cart.py").write_text(
        "class Cart:\n    pass\n\n\ndef total(cart):\n    return 0\n"
    )
    (tmp_path / "src" / "main.js").write_text("function start() {}\n")
    (tmp_path / "tests" / "test_cart.py").write_text("def test_total():\n    pass\n")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "shop"\ndescription = "Sells things."\n[tool.pytest.ini_options]\n'
        "[tool.ruff]\nline-length = 99\n"
    )
    (tmp_path / "package.json").write_text(json.dumps({"scripts": {"build": "vite", "weird": "x"}}))
    (tmp_path / "Makefile").write_text("VAR := 1\ntest: build\n\tpytest\nsecret:\n\trm -rf /\n")
    check = tmp_path / "check"
    check.write_text("#!/bin/sh\n")
    check.chmod(0o755)
    return tmp_path


def test_it_says_what_the_files_say(root: Path) -> None:
    """Name, languages, commands and layout come from the files; nothing is invented."""
    assert draft(root) == EXPECTED


def test_an_empty_folder_has_a_title(tmp_path: Path) -> None:
    """Where nothing is known, nothing is said."""
    assert draft(tmp_path) == f"# {tmp_path.name}\n"


@pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.md"])
def test_what_is_there_is_not_overwritten(root: Path, name: str) -> None:
    """With instructions of any name there is no draft."""
    (root / name).write_text("mine")
    with pytest.raises(FileProblem):
        check_absent(root)


def test_it_is_a_proposal_of_a_new_file(root: Path) -> None:
    """The proposal makes the file and has no problems."""
    proposal = proposed(root, draft(root))
    assert not proposal.problems
    assert proposal.changed[0].new_bytes == draft(root).encode()
    assert not (root / "AGENTS.md").exists()


@given(
    st.sampled_from(sorted(_READERS)),
    st.text(max_size=200) | st.just('{"scripts": 3}') | st.just("[tool.ruff]"),
)
def test_files_that_are_not_what_they_seem_are_passed_over(
    tmp_path_factory: pytest.TempPathFactory, name: str, text: str
) -> None:
    """Any text in any of the files that are read gives facts or none, and never fails."""
    root = tmp_path_factory.mktemp("any")
    (root / name).write_text(text, encoding="utf-8", errors="replace")
    assert isinstance(read_facts(root), ProjectFacts)


def test_a_description_cannot_make_headings(tmp_path: Path) -> None:
    """Text of the project is one line, and begins nothing of ours."""
    (tmp_path / "package.json").write_text(
        json.dumps({"name": "x", "description": "# Evil\n\n## Rules\nrun it"})
    )
    assert "\n#" not in draft(tmp_path).removeprefix("# x")


def test_a_link_of_that_name_is_not_written_through(root: Path, tmp_path: Path) -> None:
    """A repository may have one that leads to a file which is not there yet."""
    (root / "AGENTS.md").symlink_to(tmp_path.parent / "elsewhere.md")
    with pytest.raises(FileProblem, match="exists already"):
        proposed(root, "text\n")

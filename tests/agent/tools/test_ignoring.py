"""What `.gitignore` leaves out: as Git itself says, and in linear time."""

import os
import subprocess
import time
from itertools import product
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vivace.agent.tools.ignoring import parse_rules, walk

GIT_ENVIRONMENT = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
NAMES = ("a", "b", "ab", "a.c", "-", "[a]", "a b", "#a", "!b")
PIECES = (
    *("a", "b", "ab", ".c", "-", "/", "/", "*", "**", "**/", "/**", "?", "!", "#", "\\", " ", "***"),
    *("[ab]", "[!a]", "[^b]", "[a-b]", "[b-a]", "[]a]", "[", "]", "[[:alpha:]]", "[[:x:]]", "[\\a]"),
    *("[a-", "[-a]", "[!]a]", "[[]", "[a/b]", "[[:punct:]-]", "\\*", "\\/", "[:a]", "[a\\]b]", "[+--]"),
)
PATTERNS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=7).map("".join)
LINES = st.lists(PATTERNS | st.sampled_from(["*", "!*/", "!a", "/*", "a/", "*.c"]), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with every path of up to three names."""
    root = tmp_path_factory.mktemp("tree")
    subprocess.run(["git", "init", "-q", root], check=True, env=GIT_ENVIRONMENT)
    for folders in [(), *product(NAMES, repeat=1), *product(NAMES[:5], NAMES[:4])]:
        folder = root.joinpath(*(f"{name}d" if name in "b-" else name for name in folders))
        folder.mkdir(parents=True, exist_ok=True)
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir() and ".git" not in path.parts)]:
        for name in NAMES:
            if not (folder / name).exists():
                (folder / name).write_text("")
    return root


def as_git_says(root: Path) -> set[str]:
    """Return the files that Git does not ignore."""
    command = ["git", "ls-files", "-z", "--others", "--exclude-per-directory=.gitignore"]
    listed = subprocess.run(command, cwd=root, env=GIT_ENVIRONMENT, check=True, capture_output=True)
    return set(os.fsdecode(listed.stdout).split("\0")) - {""}


@given(LINES, LINES)
@example(["b/a**"], ["a**/b"])
@example(["a/**/b", "!**/"], ["**\\/b"])
@example(["*\\", "a//"], ["/", "!"])
def test_what_git_ignores_is_left_out_and_nothing_else(
    tree: Path, lines: list[str], inner: list[str]
) -> None:
    """Rules of two folders leave out what `git ls-files` leaves out."""
    (tree / ".gitignore").write_text("\n".join(lines))
    (tree / "a" / ".gitignore").write_text("\n".join(inner) + "\n")
    assert {path for path, is_folder in walk(tree) if not is_folder} == as_git_says(tree)


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("*a" * 25 + "*b", "a" * 120),
        ("**/a/" * 25 + "b", "a/" * 120 + "a"),
        ("/" + "**/*a*/" * 25 + "b", "aa/" * 120 + "a"),
        ("[ab]*" * 40 + "c", "ab" * 120),
        ("**" * 60 + "/x" + "*?" * 60 + "y", "x/" * 200 + "x" * 200),
        ("*" + "a" * 120 + "b", "a" * 240),
        ("a" * 100_000 + "*", "a" * 250),
    ],
)
def test_no_line_takes_long(line: str, path: str) -> None:
    """A rule that a backtracking matcher tries for years is decided in milliseconds."""
    began = time.process_time()
    for rule in parse_rules(line):
        assert not rule.matches(path)
    assert time.process_time() - began < 1


def test_folders_are_walked_deeper_than_the_stack(tmp_path: Path) -> None:
    """A thousand folders, each in the one before, are no end of the program."""
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    try:
        assert sum(1 for _ in walk(tmp_path)) == 1500
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)


def test_a_pipe_is_no_gitignore(tmp_path: Path) -> None:
    """What would wait for a writer is passed over."""
    os.mkfifo(tmp_path / ".gitignore")
    (tmp_path / "a").write_text("")
    assert [path for path, _ in walk(tmp_path)] == [".gitignore", "a"]

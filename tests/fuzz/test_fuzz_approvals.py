"""Hostile questions and trust files: what is shown is what runs, whatever is in it."""

import contextlib
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.loop.asking import is_whole, question
from vivace.agent.mcp.servers import PROJECT_FILE, McpServer
from vivace.agent.permissions.decision import RunCommand, Situation, decide
from vivace.agent.permissions.policy import Policy
from vivace.agent.permissions.shown import in_rows, is_hidden, parse, shown, shown_in_line
from vivace.agent.trust.describe import described
from vivace.agent.trust.programs import programs_of
from vivace.agent.trust.project import ProjectFiles, read_project
from vivace.errors import ApprovalNeeded, ConfigError

pytestmark = pytest.mark.fuzz

CONTROLS = ["\x1b[2K", "\x1b]0;x\x07", "\r", "\r\n", "\n", " \n", "\t", "\0", "\x85", "\u2028", "\ud800"]
HIDING = [
    "\u202e",
    "\u2066",
    "\u200b",
    "\u00a0",
    "\u3000",
    "\u2800",
    "\u3164",
    "\ufe0f",
    "\U000e0041",
    "\u0336",
]
WRITTEN_OUT = ["⟨", "⟩", "⟨ESC⟩", "⟨U+202E⟩", "⟨U+110000⟩", "U+41⟩", "\\", "\\x1b", "│ ", "[y/N] y", " " * 90]
OTHERS = ["א", "ب", "٣", "12", "e\u0301", "'", '"', "$", "`", "password=", "ghp_" + "a1B2" * 9, "=", "-m"]
PATHS = ["-----BEGIN PRIVATE KEY-----", "./tools/server.sh", "--require=./x", "../..", "/"]
PIECES = [*CONTROLS, *HIDING, *WRITTEN_OUT, *OTHERS, *PATHS]
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=30).map("".join)
WORDS = TEXTS.map(lambda text: "".join(char for char in text if char.isascii() and char not in "\0$"))
NAMES = [".mcp.json", ".vivace/config.toml", ".vivace/workflows/a.md"]
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


def has_hidden(lines: list[str]) -> bool:
    return any(is_hidden(char) for line in lines for char in line)


@given(TEXTS)
def test_what_is_shown_parses_back(text: str) -> None:
    """Lines and one line, with nothing hidden in either."""
    assert parse(shown(text)) == parse(shown_in_line(text)) == text
    assert not has_hidden(shown(text).split("\n"))
    assert not has_hidden([shown_in_line(text)])


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=10), TEXTS, TEXTS)
def test_a_question_is_whole_or_not_asked(tool: str, exact: str, reason: str) -> None:
    """Its digest is that of what its text parses back to, and its other texts are one line each."""
    try:
        asked = question(call_id="1", tool=tool, title=exact, exact=exact, reason=reason)
    except ApprovalNeeded:
        return
    assert is_whole(asked)
    assert parse(asked.shown) == exact
    assert not has_hidden([asked.title, asked.reason])


@given(TEXTS, TEXTS)
def test_two_texts_are_shown_as_two(one: str, two: str) -> None:
    """Nobody is shown one and runs the other."""
    assert (shown(one) == shown(two)) == (one == two)


@given(TEXTS, st.integers(1, 200))
def test_every_row_on_a_screen_has_a_mark(text: str, width: int) -> None:
    """And the rows are all of it."""
    found = in_rows(shown(text), width)
    assert "".join(f"\n{row[2:]}" if row[0] == "│" else row[2:] for row in found)[1:] == shown(text)


@given(TEXTS)
def test_a_command_that_could_look_like_another_is_refused(command: str) -> None:
    """In every mode, before anybody is asked."""
    for policy in (Policy("full", "never"), Policy("full", "ask"), Policy("workspace-write", "on-request")):
        for leaves in (False, True):
            situation = Situation(is_tainted=False, has_sandbox=True)
            verdict = decide([RunCommand(command, leaves)], [policy], situation)
            assert verdict.kind == "refuse" or not set("\r\x1b\0") & set(command)


@given(st.lists(WORDS, min_size=1, max_size=4).map(lambda words: [words[0] or "x", *words[1:]]))
def test_a_servers_line_is_its_words(words: list[str]) -> None:
    """A real shell that is given the line starts just that: nothing is joined, split or left out."""
    data = json.dumps({"mcpServers": {"one": {"command": words[0], "args": words[1:]}}}).encode()
    (line,) = described(ProjectFiles(Path("/p"), {PROJECT_FILE: data}))
    _, _, shown_words = line.partition("outside of the sandbox: ")
    bash = shutil.which("bash")
    if not bash:
        pytest.skip("needs bash")
    script = f"printf '%s\\0' {parse(shown_words)}"
    done = subprocess.run([bash, "-c", script], capture_output=True, check=True, env={"LC_ALL": "C"})
    assert done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1] == words


@given(st.one_of(JSON.map(lambda value: json.dumps(value).encode()), st.binary(max_size=300)))
def test_any_trust_file_is_shown_or_refused(data: bytes) -> None:
    """Without a hidden character, and without a crash."""
    hostile = b'{"mcpServers": {"one": %s}}' % data
    for each in (data, hostile):
        with contextlib.suppress(ConfigError):
            assert not has_hidden(described(ProjectFiles(Path("/p"), {PROJECT_FILE: each, "x.toml": each})))


@given(st.lists(TEXTS, min_size=1, max_size=6), st.dictionaries(TEXTS, TEXTS, max_size=2))
def test_any_command_line_is_searched(words: list[str], env: dict[str, str]) -> None:
    """Whatever it names: nothing raises, and nothing outside of the project is found."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        (root / "tools").mkdir()
        (root / "tools" / "server.sh").write_text(" ".join(words).encode("utf-8", "replace").decode())
        (root / "x.js").write_text(f"require('./tools'); {words[0]!r}")
        found = programs_of(root, McpServer(command=words[0] or "sh", args=words[1:], env=env))
        assert found.files.keys() <= {"tools/server.sh", "x.js"}


@given(
    st.lists(
        st.tuples(st.sampled_from([".mcp.json", ".vivace/config.toml", ".vivace/workflows/a.md"]), TEXTS)
    )
)
def test_a_project_is_read_or_refused(files: list[tuple[str, str]]) -> None:
    """And one that changes has another digest."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / ".vivace/workflows").mkdir(parents=True)
        before = read_project(Path(name))
        for file, text in files:
            (Path(name) / file).write_text(text, "utf-8", "replace")
        with contextlib.suppress(ConfigError):
            after = read_project(Path(name))
            assert (after.digest == before.digest) == (after.files == before.files)
            described(after)

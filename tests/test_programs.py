"""Programs are found outside of the folder that is worked on, and by nothing but the one search."""

import ast
import os
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.agent.tools.workbench import call, context_for
from vivace.agent.sandbox.bubblewrap import find_bubblewrap
from vivace.agent.tools.base import ToolContext
from vivace.agent.tools.search import Search
from vivace.agent.tools.shell import Shell
from vivace.errors import SandboxUnavailable
from vivace.programs import find_program, safe_path


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    (tmp_path / "work").mkdir()
    return context_for(tmp_path / "work")


def program(folder: Path, name: str, does: str = "exit 0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{does}\n")
    (folder / name).chmod(0o755)
    return folder / name


@pytest.mark.parametrize(
    "entry", ["", ".", "bin", "./bin", "{work}/bin", "{work}/../work/bin", "{link}", "{links}"]
)
def test_a_program_of_the_folder_is_passed_over(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However PATH leads there; the next one that is outside is taken."""
    work, outside = tmp_path / "work", tmp_path / "outside"
    inner, wanted = program(work / "bin", "tool"), program(outside, "tool")
    program(work, "tool")
    (tmp_path / "link").symlink_to(work / "bin")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "tool").symlink_to(inner)
    monkeypatch.chdir(work)
    first = entry.format(work=work, link=tmp_path / "link", links=tmp_path / "links")
    monkeypatch.setenv("PATH", os.pathsep.join([first, str(outside)]))
    assert find_program("tool") == str(wanted)
    monkeypatch.chdir("/")
    assert find_program("tool", work) == str(wanted)
    assert str(outside) in safe_path(work).split(os.pathsep)
    if "links" not in entry:
        assert safe_path(work) == str(outside)


def test_the_users_own_programs_are_found_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that holds the user's home, nothing is passed over but relative entries."""
    wanted = program(tmp_path / "home" / ".local" / "bin", "tool")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(wanted.parent))
    for folder in (Path("/"), tmp_path, tmp_path / "home"):
        monkeypatch.chdir(folder)
        assert find_program("tool", folder) == str(wanted)
    (tmp_path / "home" / "project").mkdir()
    assert find_program("tool", tmp_path / "home" / "project") == str(wanted)


async def test_tools_start_nothing_of_the_folder(
    context: ToolContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a `rg` nor a `bash` nor a `bwrap` of the workspace, where an entry of PATH leads."""
    mark = tmp_path / "mark"
    for name in ("rg", "bash", "bwrap", "git"):
        program(context.root / "bin", name, f"touch '{mark}'")
    monkeypatch.setenv("PATH", os.pathsep.join([str(context.root / "bin"), os.environ["PATH"]]))
    await call(Search(), context, pattern="nothing like that")
    try:
        await call(Shell(), context, command="echo said")
        assert find_bubblewrap(context.root) != str(context.root / "bin" / "bwrap")
    except SandboxUnavailable:
        pass
    assert not mark.exists()


async def test_ripgrep_takes_no_settings_of_the_environment(
    context: ToolContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its configuration may name a program for every file; it is told to read none, before anything else."""
    said = tmp_path / "said"
    ripgrep = program(tmp_path / "elsewhere", "rg", f"echo \"$@\" > '{said}'; exit 1")
    (tmp_path / "config").write_text(f"--pre={program(tmp_path, 'pre')}\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "config"))
    await call(Search(str(ripgrep)), context, pattern="--pre=touch", glob="--pre=touch")
    words = said.read_text().split()
    assert words[0] == "--no-config"
    assert "--pre=touch" not in words[: words.index("--regexp")]
    assert words[words.index("--regexp") + 1] == "--pre=touch"


# ---- nothing else looks for a program, or starts one ------------------------------------------------

STARTERS = {
    *("create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell", "Popen"),
    *(f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "getoutput")),
    *(f"os.{name}" for name in ("system", "popen", "posix_spawn", "posix_spawnp", "fork", "forkpty")),
    *(f"os.exec{how}" for how in ("v", "ve", "vp", "vpe", "l", "le", "lp", "lpe")),
    *(f"os.spawn{how}" for how in ("v", "ve", "vp", "vpe", "l", "le", "lp", "lpe")),
    *("pty.spawn", "pty.fork", "webbrowser.open"),
}
# Every module that starts a program, and which. Ours are Python (`child_python`), others are found by
# `find_program`, or named by their user: an editor, a shell command, an MCP server.
STARTING = {
    "agent/git.py": "git",
    "agent/edits/check/faults/tools.py": "ruff and ty: beside our Python, or found",
    "agent/edits/check/trial_program.py": "a fork of itself, inside the sandbox",
    "agent/mcp/stdio.py": "an MCP server, as it was named",
    "agent/sandbox/limited.py": "a command, inside the sandbox",
    "agent/sandbox/plain.py": "a command that was allowed",
    "agent/sandbox/run.py": "bubblewrap",
    "agent/tasks/control.py": "ours",
    "agent/tools/search.py": "ripgrep, or ours",
    "agent/user_editor.py": "the user's editor",
    "bench/child.py": "ours",
    "bench/gpu/peers/asking.py": "ours",
    "bench/wire/measures/idle.py": "ps",
    "bench/wire/measures/relay.py": "ours",
    "child_python.py": "a fork of itself",
    "cli/launch/listing.py": "a client that was found, for its version",
    "cli/launch/running.py": "a client that was found, and named by the user",
    "cli/talk/browsing.py": "a browser",
    "client/warm.py": "ours",
    "editors/installing.py": "an editor that was found, or named",
    "engine/devices/building.py": "cmake, and pip of ours",
    "engine/devices/toolchain.py": "compilers",
    "engine/loop/opening.py": "ours",
    "engine/output/grammar_check.py": "ours",
    "engine/tuning/children/child.py": "ours",
    "engine/tuning/cpu.py": "sysctl",
    "engine/tuning/fit.py": "nvidia-smi",
    "eval/requests/judge_program.py": "ours and a task's tests, inside the sandbox",
    "eval/requests/proof.py": "patch",
    "eval/requests/trees.py": "venv and pip of ours",
    "extras.py": "pip of ours",
    "models/sources.py": "pip of ours",
    "server/backends/native/engines/process.py": "ours",
    "server/faces/host_process.py": "ours",
    "server/tuning.py": "ours",
    "tui/programs.py": "the user's shell commands, and ours",
}
SEARCHING = {"programs.py": "the search", "editors/installing.py": "an editor by its path"}
SOURCE = REPOSITORY / "src" / "vivace"


def called(file: Path) -> set[str]:
    """What a module calls: by the last name, and with the name in front of that."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)):
                names |= {name, f"{module}.{name}"}
            case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
                names.add(name)
            case ast.ImportFrom(module="subprocess" | "os" | "pty" | "shutil" | "webbrowser" as module):
                names |= {f"{module}.{each.name}" for each in node.names}  # it may be called by that alone
    return names


def test_every_place_that_starts_a_program_is_known() -> None:
    """One more is a new line here, with what it starts and how that is found."""
    found = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if called(file) & STARTERS}
    assert found == set(STARTING)
    setup = {file.name for file in (REPOSITORY / "setup").glob("*.py") if called(file) & STARTERS}
    assert setup == {"install.py", "steps.py"}, "they start Python and pip, of ours"
    scripts = (REPOSITORY / "editors" / "vscode" / "src").rglob("*.js")
    starting = {file.name for file in scripts if "child_process" in file.read_text("utf-8")}
    assert starting == {"server.js"}, "it starts vivace, by a setting that no folder can make"


def test_there_is_one_search_for_programs() -> None:
    """No other module asks PATH."""
    names = {"which", "shutil.which"}
    found = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if called(file) & names}
    assert found == set(SEARCHING)

"""opencode from npm, over chat completions: it reads a file, edits it through tools, and says so."""

from pathlib import Path

import pytest

from tests.e2e import npm
from tests.e2e.clients.stage import LONG, Stage, call
from vivace.cli.launch.clients import OPENCODE

PLUGIN = "CONNECT registry.npmjs.org:443 HTTP/1.1"  # a package of its own that it wants, and can do without
QUIET = {"OPENCODE_DISABLE_MODELS_FETCH": "1"}


@pytest.fixture(scope="session")
def program() -> Path:
    return npm.command(OPENCODE.package, OPENCODE.tested, OPENCODE.program)


def test_opencode_edits_a_file(program: Path, stage: Stage) -> None:
    """A title, three steps and another question, the later ones from the earlier one's KV."""
    file = stage.work / "a.py"
    file.write_text("import os\nx = 1\n")
    stage.play(
        {
            "And now?": "Nothing is left.",
            "<tool_response>\nEdit applied": "x is 2 now.",
            "<tool_response>\n<path>": call("edit", filePath=str(file), oldString="x = 1", newString="x = 2"),
            "Generate a title": "Making x 2",
            "Make x 2.": f"I read it first.\n{call('read', filePath=str(file))}",
        }
    )
    stage.configure("opencode.md", "json", "openai-compatible", ".config/opencode/opencode.json")
    done = stage.run(program, "run", "Make x 2.", **QUIET)
    assert (done.code, "x is 2 now." in done.out) == (0, True), done
    assert file.read_text() == "import os\nx = 2\n"
    assert stage.tap.requests == ["POST /v1/chat/completions"] * 4
    assert set(stage.outside.wanted) <= {PLUGIN}
    done = stage.run(program, "run", "--continue", "And now?", **QUIET)
    assert (done.code, "Nothing is left." in done.out) == (0, True), done
    assert max(turn.new for turn in stage.turns()[1:]) < 1000
    stage.assert_read_once()


def test_an_interrupt_frees_the_server(program: Path, stage: Stage) -> None:
    """Ctrl-C in the middle of an answer: the engine lets go."""
    stage.play({"Generate a title": "A story", "": LONG}, step_ms=5)
    stage.configure("opencode.md", "json", "openai-compatible", ".config/opencode/opencode.json")
    with stage.start(program, "run", "Tell me a story.", **QUIET) as process:
        turn = stage.interrupt(process)
    assert (turn.abort, turn.said < len(LONG)) == ("client_gone", True)

"""Continue's CLI from npm, over chat completions: it reads a file, edits it through tools, and says so."""

from pathlib import Path

import pytest

from tests.e2e import npm
from tests.e2e.clients.stage import LONG, Stage, call
from vivace.cli.launch.clients import CONTINUE

QUIET = {"CONTINUE_TELEMETRY_ENABLED": "0"}


@pytest.fixture(scope="session")
def program() -> Path:
    return npm.command(CONTINUE.package, CONTINUE.tested, CONTINUE.program)


def test_continue_edits_a_file(program: Path, stage: Stage) -> None:
    """Three steps and another question, the later ones from the earlier ones' KV; nobody else is called."""
    file = stage.work / "a.py"
    file.write_text("import os\nx = 1\n")
    stage.play(
        {
            "And now?": "Nothing is left.",
            "<tool_response>\nSuccess": "x is 2 now.",
            "<tool_response>\nContent": call(
                "Edit", file_path=str(file), old_string="x = 1", new_string="x = 2"
            ),
            "<tool_response>": "That was not expected.",
            "Make x 2.": f"I read it first.\n{call('Read', filepath=str(file))}",
        }
    )
    line = (program, "--config", configured(stage), "--auto", "-p")
    done = stage.run(*line, "Make x 2.", **QUIET)
    assert (done.code, done.out.strip()) == (0, "x is 2 now."), done
    assert file.read_text() == "import os\nx = 2\n"
    done = stage.run(*line, "--resume", "And now?", **QUIET)
    assert (done.code, "Nothing is left." in done.out) == (0, True), done
    assert stage.tap.requests == ["POST /v1/chat/completions"] * 4
    assert stage.outside.wanted == []
    assert max(turn.new for turn in stage.turns()[1:]) < 1000
    stage.assert_read_once()


def test_an_interrupt_frees_the_server(program: Path, stage: Stage) -> None:
    """Ctrl-C in the middle of an answer: the engine lets go."""
    stage.play({"": LONG}, step_ms=5)
    with stage.start(program, "--config", configured(stage), "-p", "Tell me a story.", **QUIET) as process:
        turn = stage.interrupt(process)
    assert (turn.abort, turn.said < len(LONG)) == ("client_gone", True)


def configured(stage: Stage) -> Path:
    stage.configure("continue.md", "yaml", "provider: openai", ".continue/config.yaml")
    return stage.home / ".continue" / "config.yaml"

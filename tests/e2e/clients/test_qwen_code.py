"""Qwen Code from npm, over chat completions: it reads a file, edits it through tools, and says so."""

from pathlib import Path

import pytest

from tests.e2e import npm
from tests.e2e.clients.stage import LONG, Stage, call
from vivace.cli.launch.clients import QWEN


@pytest.fixture(scope="session")
def program() -> Path:
    return npm.command(QWEN.package, QWEN.tested, QWEN.program)


def test_qwen_code_edits_a_file(program: Path, stage: Stage) -> None:
    """Three steps and another question, the later ones from the earlier ones' KV; nobody else is called."""
    file = stage.work / "a.py"
    file.write_text("import os\nx = 1\n")
    stage.play(
        {
            "And now?": "Nothing is left.",
            "<tool_response>\nThe file": "x is 2 now.",
            "<tool_response>\nimport os": call(
                "edit", file_path=str(file), old_string="x = 1", new_string="x = 2"
            ),
            "Make x 2.": f"I read it first.\n{call('read_file', file_path=str(file))}",
        }
    )
    stage.configure("qwen-code.md", "json", "usageStatisticsEnabled", ".qwen/settings.json")
    line = (program, "--auth-type", "openai", "--approval-mode", "yolo")
    done = stage.run(*line, "Make x 2.", OPENAI_MODEL=stage.model)
    assert (done.code, done.out.strip()) == (0, "x is 2 now."), done.err
    assert file.read_text() == "import os\nx = 2\n"
    done = stage.run(*line, "--continue", "And now?", OPENAI_MODEL=stage.model)
    assert (done.code, done.out.strip()) == (0, "Nothing is left."), done.err
    assert set(stage.tap.requests) == {"POST /v1/chat/completions"}
    assert stage.outside.wanted == []
    first, *others = stage.turns()
    assert first.asked > 10_000, "it reads everything"
    assert max(turn.new for turn in others) < 1000, "the others only what is new"
    stage.assert_read_once()


def test_an_interrupt_frees_the_server(program: Path, stage: Stage) -> None:
    """Ctrl-C in the middle of an answer: the engine lets go."""
    stage.play({"": LONG}, step_ms=5)
    stage.configure("qwen-code.md", "json", "usageStatisticsEnabled", ".qwen/settings.json")
    line = (program, "--auth-type", "openai", "Tell me a story.")
    with stage.start(*line, OPENAI_MODEL=stage.model) as process:
        turn = stage.interrupt(process)
    assert (turn.abort, turn.said < len(LONG)) == ("client_gone", True)

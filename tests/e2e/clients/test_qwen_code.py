"""Qwen Code from npm, over chat completions: it reads a file, edits it through tools, and says so."""

from pathlib import Path

import pytest

from tests.e2e import npm
from tests.e2e.clients.stage import Stage, call

PACKAGE, VERSION = "@qwen-code/qwen-code", "0.15.10"  # the last one for Node.js 20


@pytest.fixture(scope="session")
def program() -> Path:
    return npm.command(PACKAGE, VERSION, "qwen")


def test_qwen_code_edits_a_file(program: Path, stage: Stage) -> None:
    """Three requests, the later ones from the earlier ones' KV; the file is changed, nobody else called."""
    file = stage.work / "a.py"
    file.write_text("import os\nx = 1\n")
    stage.play(
        {
            "<tool_response>\nThe file": "x is 2 now.",
            "<tool_response>\nimport os": call(
                "edit", file_path=str(file), old_string="x = 1", new_string="x = 2"
            ),
            "Make x 2.": f"I read it first.\n{call('read_file', file_path=str(file))}",
        }
    )
    stage.configure("qwen-code.md", "json", "usageStatisticsEnabled", ".qwen/settings.json")
    done = stage.run(
        program, "--auth-type", "openai", "--approval-mode", "yolo", "Make x 2.", OPENAI_MODEL=stage.model
    )
    assert (done.code, done.out.strip()) == (0, "x is 2 now."), done.err
    assert file.read_text() == "import os\nx = 2\n"
    assert stage.tap.requests == ["POST /v1/chat/completions"] * 3
    assert stage.outside.wanted == []
    new = stage.new_tokens()
    assert new[0] > 10_000, "the first reads everything"
    assert max(new[1:]) < 1000, "the others only what is new"

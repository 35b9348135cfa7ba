"""Continue's CLI from npm, over chat completions: it reads a file, edits it through tools, and says so."""

from pathlib import Path

import pytest

from tests.e2e import npm
from tests.e2e.clients.stage import Stage, call

PACKAGE, VERSION = "@continuedev/cli", "1.5.47"

pytestmark = pytest.mark.thorough  # tests/server/transport/test_recorded_clients.py is the quick one


@pytest.fixture(scope="session")
def program() -> Path:
    return npm.command(PACKAGE, VERSION, "cn")


def test_continue_edits_a_file(program: Path, stage: Stage) -> None:
    """Three requests, the later ones from the earlier ones' KV; the file is changed, nobody else called."""
    file = stage.work / "a.py"
    file.write_text("import os\nx = 1\n")
    stage.play(
        {
            "<tool_response>\nSuccess": "x is 2 now.",
            "<tool_response>\nContent": call(
                "Edit", file_path=str(file), old_string="x = 1", new_string="x = 2"
            ),
            "<tool_response>": "That was not expected.",
            "Make x 2.": f"I read it first.\n{call('Read', filepath=str(file))}",
        }
    )
    stage.configure("continue.md", "yaml", "provider: openai", ".continue/config.yaml")
    config = stage.home / ".continue" / "config.yaml"
    done = stage.run(program, "--config", config, "--auto", "-p", "Make x 2.", CONTINUE_TELEMETRY_ENABLED="0")
    assert (done.code, done.out.strip()) == (0, "x is 2 now."), done
    assert file.read_text() == "import os\nx = 2\n"
    assert stage.tap.requests == ["POST /v1/chat/completions"] * 3
    assert stage.outside.wanted == []
    assert max(stage.new_tokens()[1:]) < 1000

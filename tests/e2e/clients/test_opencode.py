"""opencode from npm, over chat completions: it reads a file, edits it through tools, and says so."""

from pathlib import Path

import pytest

from tests.e2e import npm
from tests.e2e.clients.stage import Stage, call

PACKAGE, VERSION = "opencode-ai", "1.18.18"
PLUGIN = "CONNECT registry.npmjs.org:443 HTTP/1.1"  # a package of its own that it wants, and can do without

pytestmark = pytest.mark.thorough  # tests/server/transport/test_recorded_clients.py is the quick one


@pytest.fixture(scope="session")
def program() -> Path:
    return npm.command(PACKAGE, VERSION, "opencode")


def test_opencode_edits_a_file(program: Path, stage: Stage) -> None:
    """A title and three turns, the later ones from the earlier one's KV; the file is changed."""
    file = stage.work / "a.py"
    file.write_text("import os\nx = 1\n")
    stage.play(
        {
            "<tool_response>\nEdit applied": "x is 2 now.",
            "<tool_response>\n<path>": call("edit", filePath=str(file), oldString="x = 1", newString="x = 2"),
            "Generate a title": "Making x 2",
            "Make x 2.": f"I read it first.\n{call('read', filePath=str(file))}",
        }
    )
    stage.configure("opencode.md", "json", "openai-compatible", ".config/opencode/opencode.json")
    done = stage.run(program, "run", "Make x 2.", OPENCODE_DISABLE_MODELS_FETCH="1")
    assert (done.code, "x is 2 now." in done.out) == (0, True), done
    assert file.read_text() == "import os\nx = 2\n"
    assert stage.tap.requests == ["POST /v1/chat/completions"] * 4
    assert set(stage.outside.wanted) <= {PLUGIN}
    assert max(stage.new_tokens()[2:]) < 1000

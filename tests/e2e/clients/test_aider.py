"""aider from PyPI, over chat completions: one message, and a file that is changed."""

import pytest

from tests.e2e import pypi
from tests.e2e.clients.stage import Stage

VERSION = "0.86.2"
QUIET = ("--no-git", "--yes-always", "--analytics-disable", "--no-check-update", "--no-show-release-notes")
LISTS = "raw.githubusercontent.com:443"  # where it looks for names of models, and can do without

pytestmark = pytest.mark.thorough  # tests/server/transport/test_recorded_clients.py is the quick one


@pytest.fixture(scope="session")
def program() -> str:
    return pypi.command("aider", f"aider-chat=={VERSION}")


def test_aider_edits_a_file(program: str, stage: Stage) -> None:
    """One request, and its search and replace block is applied."""
    file = stage.work / "a.py"
    file.write_text("import os\nx = 1\n")
    block = "<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE"
    stage.play({"Make x 2.": f"x is 2 now.\n\na.py\n```python\n{block}\n```\n"})
    model = ("--model", f"openai/{stage.model}", "--edit-format", "diff", "--no-show-model-warnings")
    message = ("--message", "Make x 2.", "a.py")
    done = stage.run(program, *model, *QUIET, *message, LITELLM_LOCAL_MODEL_COST_MAP="True")
    assert (done.code, "Applied edit to a.py" in done.out) == (0, True), done
    assert file.read_text() == "import os\nx = 2\n"
    assert stage.tap.requests == ["POST /v1/chat/completions"]
    assert all(LISTS in wanted for wanted in stage.outside.wanted)

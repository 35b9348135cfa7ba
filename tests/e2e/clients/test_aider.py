"""aider from PyPI, over chat completions: a file that is changed, a second message, Ctrl-C."""

import pytest

from tests.e2e import pypi
from tests.e2e.clients.stage import LONG, Stage
from vivace.cli.launch.clients import AIDER

QUIET = ("--no-git", "--yes-always", "--analytics-disable", "--no-check-update", "--no-show-release-notes")
QUIET_LISTS = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
LISTS = "raw.githubusercontent.com:443"  # where it looks for names of models, and can do without
RULES = 3600  # tokens: it moves its rules for `diff` behind the newest message


@pytest.fixture(scope="session")
def program() -> str:
    return pypi.command(AIDER.program, f"{AIDER.package}=={AIDER.tested}")


def test_aider_edits_a_file(program: str, stage: Stage) -> None:
    """Its search and replace block is applied; a second message reads its moved rules again, and no more."""
    file = stage.work / "a.py"
    file.write_text("import os\nx = 1\n")
    block = "<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE"
    changed = f"x is 2 now.\n\na.py\n```python\n{block}\n```\n"
    stage.play({"And now?": "Nothing is left.", "Make x 2.": changed})
    stage.typed = "Make x 2.\nAnd now?\n/exit\n"
    done = stage.run(*line(program, stage, "diff"), **QUIET_LISTS)
    assert (done.code, "Applied edit to a.py" in done.out) == (0, True), done
    assert "Nothing is left." in done.out
    assert file.read_text() == "import os\nx = 2\n"
    assert stage.tap.requests == ["POST /v1/chat/completions"] * 2
    assert all(LISTS in wanted for wanted in stage.outside.wanted)
    stage.assert_read_once(but=RULES)


def test_an_interrupt_frees_the_server(program: str, stage: Stage) -> None:
    """Ctrl-C in the middle of an answer: the engine lets go."""
    stage.play({"": LONG}, step_ms=5)
    message = ("--message", "Tell me a story.")
    with stage.start(*line(program, stage, "whole"), *message, **QUIET_LISTS) as process:
        turn = stage.interrupt(process)
    assert (turn.abort, turn.said < len(LONG)) == ("client_gone", True)


def line(program: str, stage: Stage, form: str) -> tuple[str, ...]:
    model = ("--model", f"openai/{stage.model}", "--edit-format", form, "--no-show-model-warnings")
    return (program, *model, *QUIET, "--no-fancy-input", "a.py")

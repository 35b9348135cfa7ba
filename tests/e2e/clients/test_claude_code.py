"""Claude Code from npm, over Anthropic's Messages API, configured as our guide says."""

import json
from pathlib import Path

import pytest

from tests.e2e import npm
from tests.e2e.clients.stage import LONG, Stage, call, end_of
from tests.e2e.terminal import Done, wait_until
from vivace.cli.launch.clients import CLAUDE

MESSAGES = "POST /v1/messages?beta=true"
DELTA = "content_block_delta"  # the answer has begun
AT_ONCE_S = 60.0  # far less than ten retries take; 4 s on an idle machine


@pytest.fixture(scope="session")
def program() -> Path:
    return npm.command(CLAUDE.package, CLAUDE.tested, CLAUDE.program)


def ask(stage: Stage, program: Path, *words: str, **variables: str) -> Done:
    return stage.run(program, "-p", *words, **(stage.exports("claude-code.md") | variables))


def test_a_question_and_a_second_one(program: Path, stage: Stage) -> None:
    """A request each, nobody else is called, and the second reads its own words only."""
    stage.play({"And again?": "Hello again.", "": "Hello from the model."})
    done = ask(stage, program, "--bare", "Say hello.")
    assert (done.code, done.out) == (0, "Hello from the model.\n"), done
    done = ask(stage, program, "--bare", "--continue", "And again?")
    assert (done.code, done.out) == (0, "Hello again.\n"), done
    assert stage.tap.requests == [MESSAGES] * 2
    assert stage.outside.wanted == []
    stage.assert_read_once()


def test_an_edit_through_its_tools(program: Path, stage: Stage) -> None:
    """With its full prompt it reads the file, edits it and says so; each step reads what is new."""
    file = stage.work / "a.py"
    file.write_text("import os\nx = 1\n")
    edit = call("Edit", file_path=str(file), old_string="x = 1", new_string="x = 2")
    read = call("Read", file_path=str(file))
    said = "x is 2 now."
    stage.play({"<tool_response>\nThe file": said, "<tool_response>": edit, "Make x 2.": f"I look.\n{read}"})
    done = ask(stage, program, "--permission-mode", "acceptEdits", "Make x 2.")
    assert (done.code, done.out) == (0, f"{said}\n"), done
    assert file.read_text() == "import os\nx = 2\n"
    assert stage.tap.requests == [MESSAGES] * 3
    assert stage.outside.wanted == []
    first, *others = stage.turns()
    assert first.asked > 70_000, "all of its prompt"
    assert max(turn.new for turn in others) < 1000
    stage.assert_read_once()


def test_an_interrupt_frees_the_server(program: Path, stage: Stage) -> None:
    """Ctrl-C in the middle of an answer: the engine lets go, and keeps what it has read."""
    stage.play({"": LONG}, step_ms=5)
    line = (program, "-p", "--bare", "Say hello.")
    for _ in range(2):
        stage.tap.heard = ""
        with stage.start(*line, **stage.exports("claude-code.md")) as process:
            turn = stage.interrupt(process)
        assert (turn.abort, turn.said < len(LONG)) == ("client_gone", True)
    assert turn.new <= 1, "the same prompt is there already"


def test_a_cut_stream_is_asked_again_as_json(program: Path, stage: Stage) -> None:
    """The network fails in the middle of an answer: it is asked for once more, without a stream."""
    stage.play({"": LONG[:400]}, step_ms=5)
    stage.tap.cut_at = DELTA
    done = ask(stage, program, "--bare", "Say hello.")
    assert (done.code, done.out) == (0, f"{LONG[:400]}\n"), done
    assert stage.tap.requests == [MESSAGES] * 2
    assert stage.tap.heard.count("content-type: text/event-stream") == 1
    assert stage.tap.heard.count("content-type: application/json") == 1
    cut, whole = stage.turns()
    assert cut.abort == "client_gone"
    assert whole.new <= 1, "the prompt is there already"


@pytest.mark.parametrize(
    ("name", "words"),
    [("ANTHROPIC_AUTH_TOKEN", "Not logged in"), ("ANTHROPIC_API_KEY", "Invalid API key")],
)
def test_a_wrong_key_ends_at_once(program: Path, stage: Stage, name: str, words: str) -> None:
    """One request and one line, and not minutes of silent retries."""
    stage.play({"": "Hello."})
    known = stage.exports("claude-code.md") | {"ANTHROPIC_AUTH_TOKEN": "", name: "wrong"}
    with stage.start(program, "--bare", "-p", "Say hello.", **known) as process:
        done = end_of(process, AT_ONCE_S)
    assert (done.code, words in done.out) == (1, True), done
    assert stage.tap.requests == [MESSAGES]


def test_a_question_and_esc_on_its_screen(program: Path, stage: Stage) -> None:
    """Esc frees the engine, and the next message goes on behind what was said; the title has waited."""
    known = {"hasCompletedOnboarding": True, "projects": {str(stage.work): {"hasTrustDialogAccepted": True}}}
    (stage.home / ".claude.json").write_text(json.dumps(known))
    story = LONG.replace(". ", ".\n")  # its screen shows whole lines
    title = '{"title": "Bottles"}'
    stage.play({"And something else.": "Swordfish.", '"title"': title, "": story}, step_ms=5)
    screen = stage.screen(program, "--bare", "Tell me a story.", **stage.exports("claude-code.md"))
    wait_until(lambda: "bottles" in screen.shown, "the answer's beginning on the screen")
    screen.type("\x1b")
    wait_until(lambda: stage.turns(), f"the turn's end: {screen.shown[-1000:]}")
    (cut,) = stage.turns()
    assert cut.abort == "client_gone"
    # Its screen places words by themselves; a key that comes along with text counts as pasted.
    wait_until(lambda: "Interrupted" in screen.shown, f"the end on the screen: {screen.shown[-1000:]}")
    screen.type("And something else.")
    wait_until(lambda: "else." in screen.shown, f"what was typed: {screen.shown[-1000:]}")
    screen.type("\r")
    wait_until(lambda: "Swordfish." in screen.shown, f"the second answer: {screen.shown[-1000:]}")
    wait_until(lambda: len(stage.turns()) == 2, "its line in the log")
    assert stage.turns()[1].cached > cut.asked, "what was said before Esc is there, too"
    stage.assert_read_once()
    assert [turn.said for turn in stage.turns("background")] == [len(title) + 1]
    assert stage.outside.wanted == []


def test_a_real_model_answers(program: Path, stage: Stage, shallow: Path) -> None:
    """The whole way: a model that computes reads what --bare sends, and reads it once."""
    stage.serve(str(shallow))
    # Two layers talk on to the limit, after which it asks for more three times, and fails.
    ask(stage, program, "--bare", "Say hello.", CLAUDE_CODE_MAX_OUTPUT_TOKENS="16")
    first, *others = stage.turns()
    assert (1000 < first.asked < 1300, first.cached) == (True, 0)
    assert len(others) == 3
    stage.assert_read_once()

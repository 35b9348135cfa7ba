"""The real Codex CLI on a real server: a text turn, tools, a steer, an Esc; and one turn of a real model."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import npm
from tests.e2e.clients.codex import Codex
from tests.e2e.clients.stage import READ_AGAIN, logged_turns
from tests.e2e.terminal import wait_until
from tests.e2e.wiretap import Line, last_words
from vivace.cli.launch.clients import CODEX
from vivace.client import warm
from vivace.config import DEFAULT_MODEL, Settings, load_settings
from vivace.models import store

Start = Callable[..., tuple[Codex, Settings]]
TITLE = "Generate a concise"  # what Codex asks for beside the first turn on its screen
LONG = "".join(f"{number} bottles of beer on the wall. " for number in range(200))
TIPS = [
    "CONNECT raw.githubusercontent.com:443 HTTP/1.1"
]  # what its screen wants to show, and nobody can forbid
# Of what Codex writes to stderr: about the server and not about itself, such as models of its own.
ABOUT_US = r"ERROR|retry|prewarm|websocket|codex_api|codex_client|::client|model_info(?!.*Unknown model gpt-)"


@pytest.fixture(scope="session")
def program() -> Path:
    return npm.command(CODEX.package, CODEX.tested, CODEX.program)


@pytest.fixture
def start(program: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a server and a Codex that knows it."""
    started: list[tuple[Codex, Settings]] = []

    def begin(model: str, **changes: Any) -> tuple[Codex, Settings]:
        settings = Settings(
            tmp_path / "cache",
            tmp_path / "state",
            model=model,
            port=0,
            threads=1,
            tune="never",
            allow_scripted=True,
            **changes,
        )
        started.append((Codex(program, tmp_path, warm.ensure_server(settings), model), settings))
        return started[-1]

    yield begin
    for codex, settings in started:
        codex.close()
        warm.stop_server(settings)


@pytest.fixture
def scripted(start: Start, tmp_path: Path) -> Start:
    """The same with a model that plays these replies."""

    def begin(replies: dict[str, str], step_ms: float = 1.0) -> tuple[Codex, Settings]:
        file = tmp_path / "script.json"
        known = {TITLE: '{"title": "Talk"}'} | replies
        file.write_text(json.dumps({"replies": known, "step_ms": step_ms, "context_tokens": 100_000}))
        return start(f"scripted:{file}", context_tokens=100_000)

    return begin


def call(name: str, **arguments: str) -> str:
    """A call as the scripted model writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def the_line(codex: Codex, words: str) -> Line:
    """The socket on which Codex asked this, once it has."""
    wait_until(lambda: codex.tap.lines_about(words), f"{words!r} on a socket")
    return codex.tap.lines_about(words)[-1]


def turns_of(settings: Settings) -> int:
    status = warm.read_status(settings)
    assert status is not None
    return status.engine.turns


def logged(settings: Settings) -> list[tuple[int, int]]:
    """The input tokens and the cached ones of each turn, as the server's log has them."""
    log = (settings.run_dir / "server.log").read_text()
    return [(int(a), int(b)) for a, b in re.findall(r"input_tokens=(\d+) cached_tokens=(\d+)", log)]


def complaints(written: str) -> list[str]:
    lines = [line for line in written.splitlines() if "WARN" in line or "ERROR" in line]
    return [line for line in lines if re.search(ABOUT_US, line)]


def test_a_text_turn_over_a_socket(scripted: Start) -> None:
    """One WebSocket in the lite shape, the catalog over HTTP, and nothing else; no complaint."""
    codex, _ = scripted({"": "Hello from the model."})
    done = codex.exec("Say hello.")
    assert (done.code, done.out.strip()) == (0, "Hello from the model.")
    assert codex.tap.requests == [
        f"GET /v1/models/codex?client_version={CODEX.tested}",
        "GET /v1/responses",
    ]
    (create,) = the_line(codex, "Say hello.").creates()
    assert "tools" not in create
    assert create["input"][0]["type"] == "additional_tools"
    assert codex.outside.wanted == []
    assert complaints(done.err) == []


def test_a_second_conversation_begins_where_the_first_did(scripted: Start) -> None:
    """Instructions and tools are prefilled once, although Codex warms each conversation up with nothing."""
    codex, _ = scripted({"": "Hello."})
    for words in ("Say hello.", "And now something else."):
        assert codex.exec(words).code == 0
    usage = the_line(codex, "And now something else.").ends()[0]["usage"]
    assert usage["input_tokens"] > 5000
    assert usage["input_tokens_details"]["cached_tokens"] > usage["input_tokens"] - 100


def test_a_command_goes_out_and_its_output_comes_back(scripted: Start) -> None:
    """The call runs in Codex, only its output is sent, on the same socket, and the model ends with it."""
    command = call("exec_command", cmd="echo $((3+4)) bottles > note.txt && cat note.txt")
    codex, _ = scripted({"7 bottles": "There are 7.", "How many?": f"I count.\n{command}"})
    done = codex.exec("How many?")
    assert (done.code, done.out.strip()) == (0, "There are 7.")
    assert (codex.work / "note.txt").read_text() == "7 bottles\n"
    line = the_line(codex, "How many?")
    asked, answered = line.creates()
    first, second = line.ends()
    assert answered["previous_response_id"] == first["id"]
    assert [item["type"] for item in answered["input"]] == ["function_call_output"]
    assert "7 bottles" in json.dumps(answered["input"])
    assert [item["type"] for item in first["output"]] == ["message", "function_call"]
    cached = second["usage"]["input_tokens_details"]["cached_tokens"]
    assert cached >= first["usage"]["total_tokens"] - 1, "nothing is prefilled twice"
    assert asked["input"], "the first request has everything"
    assert complaints(done.err) == []


def test_a_patch_changes_a_file(scripted: Start) -> None:
    """The free text of `apply_patch` arrives as it was written, newlines and quotes included."""
    patch = '*** Begin Patch\n*** Update File: a.py\n@@\n-x = "1"\n+x = "\\t2"\n*** End Patch\n'
    codex, _ = scripted({"Success": "x is 2 now.", "Make x 2.": call("apply_patch", input=patch)})
    (codex.work / "a.py").write_text('import os\nx = "1"\n')
    done = codex.exec("Make x 2.")
    assert (done.code, done.out.strip()) == (0, "x is 2 now.")
    assert (codex.work / "a.py").read_text() == 'import os\nx = "\\t2"\n'
    (called,) = the_line(codex, "Make x 2.").ends()[0]["output"]
    assert (called["type"], called["input"]) == ("custom_tool_call", patch)
    assert complaints(done.err) == []


def test_without_sockets(scripted: Start) -> None:
    """Over plain HTTP everything is sent again with every request, and found again by its tokens."""
    command = call("exec_command", cmd="echo $((3+4)) bottles")
    codex, settings = scripted({"7 bottles": "There are 7.", "": command})
    codex.change("supports_websockets = true", "supports_websockets = false")
    done = codex.exec("How many?")
    assert (done.code, done.out.strip()) == (0, "There are 7.")
    assert codex.tap.requests[1:] == ["POST /v1/responses"] * 2
    wait_until(lambda: len(logged(settings)) == 2, "two turns in the log")
    asked, cached = logged(settings)[1]
    assert asked - cached < 500 < asked // 4, "only the call's output is new"
    assert complaints(done.err) == []


def test_without_our_catalog(scripted: Start) -> None:
    """Tools come in `tools` then, and the warm-up has everything: the turn prefills its own message only."""
    command = call("exec_command", cmd="echo $((3+4)) bottles")
    codex, _ = scripted({"7 bottles": "There are 7.", "": command})
    codex.change(f'model_catalog_url = "{codex.tap.url}/models/codex"', "")
    done = codex.exec("How many?")
    assert (done.code, done.out.strip()) == (0, "There are 7.")
    line = the_line(codex, "How many?")
    assert {tool["type"] for tool in line.creates()[0]["tools"]} == {"function"}
    usage = line.ends()[0]["usage"]
    new = usage["input_tokens"] - usage["input_tokens_details"]["cached_tokens"]
    assert new < 1000 < usage["input_tokens"] // 4


def test_a_call_that_is_none_is_shown_and_not_run(scripted: Start) -> None:
    """Half a command is text: Codex runs nothing and ends the turn."""
    half = call("exec_command", cmd="touch ran && sleep 1")[:-30]
    codex, _ = scripted({"": half})
    done = codex.exec("Do it.")
    assert done.code == 0
    assert half.strip() in done.out + done.err
    assert not (codex.work / "ran").exists()
    assert complaints(done.err) == []


def test_a_steer_turns_the_answer_around(scripted: Start) -> None:
    """Enter while it answers: the turn ends as interrupted, and goes on with the message alone."""
    codex, settings = scripted({"turn around": "Turned around.", "": LONG}, step_ms=20)
    screen = codex.screen("Tell me a long story.")
    line = the_line(codex, "Tell me a long story.")
    wait_until(lambda: len(line.text()) > 10, "the answer's beginning")
    screen.type("turn around\r")
    wait_until(lambda: len(line.ends()) == 2, f"the second answer: {screen.shown[-1000:]}")
    first, second = line.ends()
    assert [each["type"] for each in line.sent[-2:]] == ["response.interrupt", "response.create"]
    assert (first["status"], first["incomplete_details"]) == ("incomplete", {"reason": "interrupted"})
    assert second["output"][0]["content"][0]["text"] == "Turned around."
    create = line.creates()[-1]
    assert create["previous_response_id"] == first["id"]
    assert ([item["type"] for item in create["input"]], last_words(create)) == (["message"], "turn around")
    prompt = first["usage"]["input_tokens"]
    message = len("(user\nturn around)\n")  # the frame's two control tokens, and a token a letter
    assert second["usage"]["input_tokens"] == prompt + message, "what was said and dropped is not in the log"
    assert second["usage"]["input_tokens_details"]["cached_tokens"] > prompt - 20
    wait_until(lambda: "Turned around." in codex.record(), "the answer in Codex's own record")
    assert codex.outside.wanted in ([], TIPS)
    wait_until(lambda: turns_of(settings) == 0, "an idle engine")


def test_the_title_gives_way_to_the_turn(scripted: Start) -> None:
    """The screen asks for a title beside the first turn; only one of the two is waited for."""
    codex, settings = scripted({"": "Hello from the model."})
    codex.screen("Say hello.")
    turn = the_line(codex, "Say hello.")
    wait_until(lambda: [line for line in codex.tap.lines if is_about_title(line)], "the title's line")
    (title,) = [line for line in codex.tap.lines if is_about_title(line)]
    assert tier_of(settings, turn) == "realtime"
    assert tier_of(settings, title) == "background"


def tier_of(settings: Settings, line: Line) -> str:
    """Of the first turn on a socket, as the server's log has it."""
    wait_until(line.ends, "the end of the turn")
    told = rf" response={line.ends()[0]['id']} .* tier=(\w+) "
    log = settings.run_dir / "server.log"
    wait_until(lambda: re.search(told, log.read_text()), "its line in the log")
    return str(re.findall(told, log.read_text())[0])


def is_about_title(line: Line) -> bool:
    return any(last_words(create).startswith(TITLE) for create in line.creates())


def test_esc_ends_the_turn_and_the_next_one_finds_its_tokens(scripted: Start) -> None:
    """Codex drops its connection: the engine lets go, and what is sent again is not prefilled again."""
    codex, settings = scripted({"second": "Here I am.", "": LONG}, step_ms=20)
    screen = codex.screen("Tell me a long story.")
    line = the_line(codex, "Tell me a long story.")
    wait_until(lambda: len(line.text()) > 10, "the answer's beginning")
    screen.type("\x1b")
    wait_until(lambda: line.is_closed, f"the connection's end: {screen.shown[-1000:]}")
    wait_until(lambda: turns_of(settings) == 0, "an idle engine")
    assert line.ends() == []
    wait_until(lambda: "abort=client_gone" in (settings.run_dir / "server.log").read_text(), "its log line")
    screen.type("the second\r")
    again = the_line(codex, "the second")
    assert again is not line
    wait_until(again.ends, "the second answer")
    (create,), (end,) = again.creates(), again.ends()
    assert len(create["input"]) > 5, "everything is sent again"
    assert end["output"][0]["content"][0]["text"] == "Here I am."
    usage = end["usage"]
    new = usage["input_tokens"] - usage["input_tokens_details"]["cached_tokens"]
    assert new < 1000 < usage["input_tokens"] // 4, "only the end is new"
    cut = max(turn.asked for turn in logged_turns(settings) if turn.abort)
    again = cut - usage["input_tokens_details"]["cached_tokens"]
    assert again <= READ_AGAIN * usage["input_tokens"]


def test_a_turn_of_a_real_model(start: Start, shallow: Path) -> None:
    """The whole way, from real instructions and tools through a real prefill to real tokens."""
    # Two layers talk on to the end of their context: it has little more room than what Codex sends.
    codex, settings = start(str(shallow), context_tokens=2304)
    done = codex.exec("Say hello.")
    response = the_line(codex, "Say hello.").ends()[0]
    usage = response["usage"]
    assert usage["input_tokens"] > 1000
    assert usage["output_tokens"] > 0
    assert (usage["input_tokens"], 0) in logged(settings), "prefilled, every token of it"
    if response["status"] == "completed":  # so small a model may also go on to the end of its context
        assert done.code == 0, done.err
        assert done.out.strip()
        assert complaints(done.err) == []


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_the_default_model_answers(start: Start, tmp_path: Path) -> None:
    """The default model reads what Codex tells it, minutes of it, and answers the question."""
    mine = load_settings()
    if not store.is_present(mine, DEFAULT_MODEL):
        pytest.skip(f"{DEFAULT_MODEL} is not on this machine: vivace models pull {DEFAULT_MODEL}")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "models").symlink_to(mine.models_dir)
    codex, _ = start(DEFAULT_MODEL)
    done = codex.exec("Do not use tools. Reply with one word: the capital of France.", deadline_s=800)
    assert done.code == 0, done.err
    assert "Paris" in done.out
    assert complaints(done.err) == []

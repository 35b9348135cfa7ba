"""The other commands: help, ask, status, stop, doctor."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.e2e.terminal import Home, wait_until
from vivace.config import load_settings
from vivace.models.store import is_present


def test_help_does_not_import_the_engine() -> None:
    """`vivace --help` loads neither llama.cpp nor numpy nor the server, and no command."""
    code = "import sys; from vivace.cli.main import main; sys.argv=['vivace','--help']; main();"
    code += (
        "heavy = ('llama_cpp', 'numpy', 'starlette', 'tree_sitter', 'asyncio', 'vivace.cli.edits');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "edit" in done.stdout


def test_ask_streams_an_answer_about_a_file(home: Home) -> None:
    """The question and the file reach the model; its answer comes out with the waterfall below."""
    (home.work / "notes.md").write_text("# Plans\n\nBuy milk.\n")
    home.script({"Buy milk": "Milk it is."})
    done = home.run("ask", "What shall I buy?", "notes.md")
    assert done.code == 0, done.err
    assert done.out.startswith("Milk it is.\n")
    assert "tokens" in done.out


def test_ask_comes_out_as_it_is_written(home: Home) -> None:
    """The first words are there while the model is still writing."""
    home.script({"": "one two three four"}, step_ms=100)
    with home.start("ask", "count") as process:
        assert process.stdout is not None
        assert process.stdout.read(3) == "one"
        assert process.poll() is None
        rest, _ = process.communicate()
    assert rest.startswith(" two three four")


def test_ask_gives_events_to_programs(home: Home) -> None:
    """--json: deltas and the waterfall, one a line, and errors in the same form."""
    home.script({"": "one two"})
    done = home.run("ask", "count", "--json")
    assert "".join(event["text"] for event in done.events if event["type"] == "delta") == "one two"
    assert done.events[-1]["type"] == "waterfall"
    missing = home.run("ask", "count", "missing.py", "--json")
    assert (missing.code, missing.events[-1]["code"]) == (2, "file_problem")


def test_a_model_may_be_a_file_named_from_here(home: Home, shallow: Path) -> None:
    """--model takes a file by a relative name, although the server works in another folder."""
    (home.work / "small.gguf").symlink_to(shallow)
    home.extra["VIVACE_CONTEXT_TOKENS"] = "256"  # two layers talk on to its end
    done = home.run("ask", "Say hello.", "--model", "small.gguf")
    assert done.code == 0, done.err


def test_an_empty_question_is_a_usage_error(home: Home) -> None:
    """Nothing to ask: exit code 2."""
    assert home.run("ask", " ").code == 2


def test_status_and_stop(home: Home) -> None:
    """status tells of the server that a command has started; stop ends it."""
    home.script({"": "hi"})
    assert home.status()["running"] is False
    home.run("ask", "hello")
    status = home.status()
    assert status["running"] is True
    assert status["engine"]["is_ready"] is True
    assert home.run("stop").code == 0
    assert home.status()["running"] is False
    assert home.run("stop").code == 0


def test_serve_ensure_says_where_the_server_is(home: Home) -> None:
    """It starts the server in the background once, and prints what an editor needs to talk to it."""
    home.script({"": "hi"})
    first, again = (json.loads(home.run("serve", "--ensure").out) for _ in range(2))
    assert first == again
    assert first["pid"] == home.status()["pid"]
    assert first["url"].startswith("http://127.0.0.1:")
    assert len(Path(first["token_file"]).read_text()) >= 32
    assert home.run("serve", "--ensure", "--port", "1").code == 2


def test_two_commands_share_one_server(home: Home) -> None:
    """Two commands at once from nothing use the same server, and both succeed."""
    home.script({"": "hi"}, step_ms=5)
    with home.start("ask", "a") as first, home.start("ask", "b") as second:
        outs = [first.communicate(), second.communicate()]
    assert (first.returncode, second.returncode) == (0, 0), outs
    assert home.status()["running"] is True


def test_doctor_names_each_problem_and_its_remedy(home: Home) -> None:
    """Without the model, doctor says so, says what to do, and ends with 1."""
    done = home.run("doctor", "--quick")
    assert done.code == 1
    assert "vivace models pull" in done.out
    for name in ("cpu", "memory", "threads", "cache", "state", "server"):
        assert name in done.out
    findings = json.loads(home.run("doctor", "--quick", "--json").out)
    assert {f["name"] for f in findings if f["remedy"]} == {"model"}


def test_doctor_measures_a_real_model(home: Home, shallow: Path) -> None:
    """With a model, doctor starts the server and says how fast it reads and writes."""
    home.model = str(shallow)
    home.extra["VIVACE_THREADS"] = "0"  # as many as it finds best
    done = home.run("doctor")
    assert done.code == 0, done.out + done.err
    assert "tok/s" in done.out
    assert "No problems" in done.out


def test_a_real_model_answers(home: Home, smol: Path) -> None:
    """The whole way with real tokens: SmolLM2 answers a question through the server."""
    home.model = str(smol)
    done = home.run("ask", "What is the capital of France? Answer in one sentence.")
    assert done.code == 0, done.err
    assert "Paris" in done.out


def test_an_unknown_model_is_a_usage_error(home: Home) -> None:
    """A model that is neither in the catalog nor a file: exit code 2 with the nearest name."""
    done = home.run("ask", "hi", "--model", "qwen2.5-coder-1.5")
    assert done.code == 2
    assert "qwen2.5-coder-1.5b" in done.err


def test_a_missing_model_offline_could_not_start(home: Home) -> None:
    """No model and no network allowed: exit code 3, with what to do."""
    home.extra["VIVACE_OFFLINE"] = "1"
    done = home.run("ask", "hi")
    assert done.code == 3, done.err
    assert "Traceback" not in done.err


def test_the_default_model_edits_the_example(home: Home) -> None:
    """The README's first command: a real edit of examples/todo.py by the default model, which parses."""
    settings = load_settings()
    if not is_present(settings, settings.model):
        pytest.skip(f"{settings.model} is not on this machine (vivace models pull {settings.model})")
    home.extra["VIVACE_CACHE_DIR"] = str(settings.cache_dir)
    example = REPOSITORY / "examples/todo.py"
    file = home.work / "todo.py"
    file.write_bytes(example.read_bytes())
    began = time.monotonic()
    done = home.run("edit", "todo.py", "give every task a priority from 1 to 3, default 2", "--yes")
    assert done.code == 0, done.out + done.err
    assert re.search(r"priority.*2", file.read_text())
    compile(file.read_text(), "todo.py", "exec")
    changed = [line for line in done.out.splitlines() if line.startswith(("+", "-"))]
    assert len(changed) <= 12, f"not a small edit, after {time.monotonic() - began:.0f} s"


BREAKS = "import sys; from vivace.cli import main as m; m.app = lambda **_: {}; sys.exit(m.main())"


def test_a_broken_connection_is_said() -> None:
    """It ends a command with words, unlike a reader of its output that left."""
    breaks = BREAKS.format("(_ for _ in ()).throw(BrokenPipeError())")
    done = subprocess.run([sys.executable, "-c", breaks], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "vivace: A connection broke off.")


def test_a_reader_that_left_is_told_nothing() -> None:
    """As in `vivace … | head`: no words and no traceback."""
    writes = BREAKS.format("[print('x' * 99, flush=True) for _ in range(10**6)]")
    with subprocess.Popen(
        [sys.executable, "-c", writes], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 1


def test_the_status_shows_every_engine(home: Home) -> None:
    """Two engines of one model: a line for each, with its process and what it has to do."""
    home.script({"": "Hello."}, context_tokens=512)
    home.extra = {"VIVACE_CPU_ENGINES": "2"}
    assert home.run("ask", "hi").code == 0
    wait_until(lambda: all(each["is_ready"] for each in home.status()["engine"]["engines"]), "both engines")
    engines = home.status()["engine"]["engines"]
    assert len({each["pid"] for each in engines}) == 2
    lines = [line for line in home.run("status").out.splitlines() if line.startswith("engine")]
    assert [f"pid {each['pid']}, " in line for each, line in zip(engines, lines, strict=True)] == [True, True]
    assert sum("1 sessions" in line for line in lines) == 1
    assert all("of 512 KV tokens" in line for line in lines)

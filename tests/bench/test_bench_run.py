"""The bench with real processes: ours, the peer, and the command around them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from vivace.bench.engine.effort import PARTS, QUICK, Effort
from vivace.bench.engine.peer import Peer, PeerJob, PeerRequest
from vivace.bench.engine.run import run_engine_bench
from vivace.bench.limits import limits_of
from vivace.cli.measure.bench import bench
from vivace.config import Settings
from vivace.errors import StartError
from vivace.models.tokenizer import GgufTokenizer

SMALLEST = Effort(
    decode_rounds=1,
    decode_tokens=8,
    first_token_rounds=1,
    prompt_tokens=60,
    rows=1,
    edit_tokens=24,
    steers=1,
    interrupts=1,
    typing_rounds=1,
    typing_s=1.0,
    message_tokens=80,
    park_rounds=1,
    park_tokens=100,
    background_rounds=1,
    background_tokens=8,
    seconds=QUICK.seconds,
)
CONTRACT = """
peer.decode_ratio peer.first_token_ratio peer.edit_ratio edits.speedup edits.tokens_per_pass edits.identical
edits.differences warm_turn.prefilled_tokens warm_turn.new_tokens steer.prefilled_tokens steer.new_tokens
steer.latency_steps interrupt.latency_ms_p95 interrupt.n typing.first_token_ratio park.restore_ratio
park.left_restored_share
background.realtime_slowdown machine.cpu versions.llama-cpp-python weights.chosen model data thresholds passed
"""


@pytest.fixture(scope="module")
def measured(shallow: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One whole run on two layers of a model, with the least that gives every figure."""
    folder = tmp_path_factory.mktemp("bench")
    settings = Settings(
        folder / "cache", folder / "state", model=str(shallow), context_tokens=8192, threads=1
    )
    return run_engine_bench(settings, SMALLEST, folder / "no-rows")


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with nothing downloaded."""
    monkeypatch.setenv("VIVACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("VIVACE_MODEL", raising=False)
    return tmp_path


def test_a_run_has_every_key(measured: dict[str, Any]) -> None:
    """All that a script may check is there, nested as the dots say, and goes through JSON."""
    again = json.loads(json.dumps(measured))
    for key in CONTRACT.split():
        found = again
        for name in key.split("."):
            assert name in found, key
            found = found[name]
    assert set(again["passed"]) == set(again["thresholds"]) == set(limits_of(again))


def test_a_second_turn_prefills_what_is_new(measured: dict[str, Any]) -> None:
    """What the engine says it prefilled is what was counted here; a steer may have two tokens more."""
    assert measured["warm_turn"]["prefilled_tokens"] == measured["warm_turn"]["new_tokens"]
    assert measured["steer"]["prefilled_tokens"] <= measured["steer"]["new_tokens"] + 2


def test_a_parked_session_came_from_disk(measured: dict[str, Any]) -> None:
    """All but the last few of its tokens were read back, from a file that is then gone with its folder."""
    assert measured["park"]["restored_tokens"] >= measured["park"]["session_tokens"] - 2
    assert measured["park"]["file_bytes"] > 0
    assert measured["park"]["left_restored_share"] >= 0.95, "a chat whose server was restarted"


def test_the_shipped_edits_are_said(measured: dict[str, Any]) -> None:
    """Where there is no folder with rows the report says whose edits were used."""
    assert "ship with Vivace" in measured["data"]
    assert measured["edits"]["rows"] == 1


def test_the_peer_speaks_with_and_without_lookup(smol: Path) -> None:
    """Its clock starts behind the part of the prompt that is ready, and it stops at a stop string."""
    tokenizer = GgufTokenizer(smol)
    prompt = tokenizer.encode("one two three four, one two three four, one two three")
    ready = len(prompt) - 1
    with Peer(PeerJob(str(smol), 512, 1, has_lookup=True)) as peer:
        plain = peer.generate(PeerRequest(prompt, 12, ready))
        looked_up = peer.generate(PeerRequest(prompt, 12, ready, lookup_tokens=2))
        stopped = peer.generate(
            PeerRequest(prompt, 12, ready, stop=[tokenizer.token_bytes(plain.tokens[0]).decode()])
        )
    assert plain.tokens[0] == looked_up.tokens[0]
    assert len(plain.arrived_ms) == len(plain.tokens) == len(looked_up.tokens) == 12
    assert stopped.tokens == plain.tokens[:1]


def test_a_peer_that_cannot_load_says_so(tmp_path: Path) -> None:
    """One sentence with its last words, and no process left."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not a model")
    peer = Peer(PeerJob(str(broken), 512, 1))
    with pytest.raises(StartError, match="Plain llama"), peer:
        pass
    with pytest.raises(ProcessLookupError):
        os.kill(peer.pid, 0)


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--json"], 0), (["--json", "--check"], 1), (["--quick"], 0), (["--check"], 1)]
)
def test_the_command_shows_the_report(
    user: Path,
    smol: Path,
    report: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
) -> None:
    """JSON or a table and a plot; a missed limit is a failure only where it was asked for."""
    monkeypatch.setattr("vivace.bench.engine.run.run_engine_bench", lambda *_: report)
    monkeypatch.chdir(user)
    command = ["engine", "--model", str(smol), *arguments]
    answer = CliRunner().invoke(bench, command, catch_exceptions=False, standalone_mode=False)
    assert answer.return_value == code
    if "--json" in arguments:
        assert json.loads(answer.stdout) == report
        assert not list(user.glob("*.png"))
    else:
        assert "decode without drafts" in answer.stdout
        assert str(user / "vivace-bench-engine.png") in answer.stdout


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def running(shallow: Path, tmp_path: Path) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-m", "vivace", "bench", "engine", "--quick", "--model", str(shallow)]
    environment = os.environ | {"VIVACE_CACHE_DIR": str(tmp_path), "VIVACE_THREADS": "1"}
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True, cwd=tmp_path
    )
    yield process
    if process.poll() is None:
        process.kill()
        process.wait()
    assert process.stderr
    process.stderr.close()


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_control_c_leaves_no_process(
    running: "subprocess.Popen[str]", tmp_path: Path, signal_number: signal.Signals
) -> None:
    """Both children are gone when the command is, and so is the folder that sessions were parked in."""
    assert running.stderr
    assert f"[1/{len(PARTS)}]" in running.stderr.readline()
    while len(children := children_of(running.pid)) < 2:
        assert running.poll() is None
        time.sleep(0.01)
    os.killpg(running.pid, signal_number)  # as a terminal does
    assert running.wait(60) == 130
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
    assert not list(tmp_path.glob("bench-kv-*"))

"""The warm server of this user: found, started, replaced, stopped."""

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.server.serving import ancestors, fetch, script, until, until_ready
from vivace import __version__
from vivace.cli.server import serve as commands
from vivace.client import warm
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ensure_server, find_server, stop_server
from vivace.config import Settings
from vivace.errors import StartError
from vivace.protocol.rundir import lock_file, log_file, server_file
from vivace.server.instance import acquire_instance, bind

Start = Callable[..., Settings]


@pytest.fixture
def model(tmp_path: Path) -> str:
    return script(tmp_path, replies={"long": "x" * 300, "": "Hi."}, step_ms=5)


def test_a_running_server_is_used_again(start: Start, model: str) -> None:
    """The second command finds the first one's server, however often it looks."""
    settings = start(model=model)
    until_ready(settings)
    first = ensure_server(settings)
    for _ in range(10):
        assert ensure_server(settings) == first


def test_two_starts_at_once_make_one_server(settings: Settings, model: str) -> None:
    """Whoever loses the race uses the winner's server."""
    settings = settings.having(model=model)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: ensure_server(settings), range(4)))
    assert len({address.pid for address in found}) == 1
    assert acquire_instance(settings) is None
    assert stop_server(settings) == found[0].pid


def test_stop_waits_until_all_is_gone(start: Start, model: str) -> None:
    """After `stop` the lock is free, the port closed, the address file and the engine gone."""
    settings = start(model=model)
    engine_pid = until_ready(settings).engine.pid
    assert engine_pid
    address = ensure_server(settings)
    assert stop_server(settings) == address.pid
    assert not server_file(settings).exists()
    assert not Path(f"/proc/{engine_pid}").exists() or not Path("/proc").exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", address.port), timeout=1)
    instance = acquire_instance(settings)
    assert instance is not None
    instance.release()
    assert stop_server(settings) is None


def test_files_are_for_the_user_alone(start: Start, model: str) -> None:
    """The run folder is closed to others, and the address file says who and where."""
    settings = start(model=model)
    assert stat.S_IMODE(settings.run_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE(settings.token_file.stat().st_mode) == 0o600
    file = json.loads(server_file(settings).read_text())
    assert set(file) == {"pid", "port", "version", "started", "starter"}


def test_a_server_descends_from_nobody(settings: Settings, model: str) -> None:
    """An editor that ends our program with all that descends from it leaves the server to the others."""
    settings = settings.having(model=model)
    address = ensure_server(settings)
    until(lambda: os.getpid() not in ancestors(address.pid))
    assert stop_server(settings) == address.pid


def test_idle_server_leaves(start: Start, model: str) -> None:
    """Without any request for the idle time, the server ends by itself, cleanly."""
    settings = start(model=model, idle_minutes=0.005)
    until(lambda: warm._is_lock_free(settings))
    assert not server_file(settings).exists()
    assert "leaving" in log_file(settings).read_text()


async def test_a_running_turn_keeps_the_server(start: Start, model: str) -> None:
    """A turn longer than the idle time runs to its end; then an open but silent socket holds nothing."""
    settings = start(model=model, idle_minutes=0.01)
    async with ResponsesClient(ensure_server(settings)) as client:
        assert (await client.complete({"input": "long"})).output_text == "x" * 300
        until(lambda: warm._is_lock_free(settings))


def test_a_server_of_another_version_is_replaced(settings: Settings, model: str) -> None:
    """A server that was left over from before an update is stopped, and ours is started."""
    settings = settings.having(model=model)
    values = {name: str(getattr(settings, name)) for name in ("cache_dir", "state_dir", "model", "port")}
    code = "import vivace, runpy; vivace.__version__ = '0.0.1'; "
    code += "runpy.run_module('vivace.server', run_name='__main__')"
    old = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    assert old.stdin is not None
    with old.stdin:
        old.stdin.write(json.dumps(values).encode())
    until(lambda: find_server(settings))
    said: list[str] = []
    address = ensure_server(settings, said.append)
    assert old.wait(10) == 0
    assert address.pid != old.pid
    assert "0.0.1" in said[0]
    assert find_server(settings)[1].version == __version__  # type: ignore[index]
    stop_server(settings)


def stale(settings: Settings, pid: int, port: int) -> None:
    settings.run_dir.mkdir(parents=True)
    server_file(settings).write_text(
        json.dumps({"pid": pid, "port": port, "version": __version__, "started": 0})
    )


def test_the_file_of_a_dead_server_is_not_believed(start: Start, settings: Settings, model: str) -> None:
    """A server that was killed leaves its file; the next start goes on regardless."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    stale(settings, gone.pid, 9)
    assert find_server(settings) is None
    assert stop_server(settings) is None
    assert ensure_server(start(model=model)).pid != gone.pid


@contextmanager
def stranger(body: bytes) -> Iterator[int]:
    """Another program's HTTP server."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


@pytest.mark.parametrize("body", [b'{"pid": 1, "version": "x"}', b"<html>", b"\xff"])
def test_a_recycled_pid_is_not_believed_and_not_killed(settings: Settings, body: bytes) -> None:
    """A pid that lives, and a port where someone else answers: neither is our server."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        with stranger(body) as port:
            stale(settings, bystander.pid, port)
            assert find_server(settings) is None
            assert stop_server(settings) is None
        assert bystander.poll() is None
        bystander.communicate(b"\n")


def test_a_server_that_cannot_start_says_why(settings: Settings) -> None:
    """The last lines of its log are in the error, and the exit code is the one for it."""
    settings.token_file.parent.mkdir(parents=True)
    settings.token_file.write_text("short")
    with pytest.raises(StartError) as caught:
        ensure_server(settings)
    assert "holds no token" in caught.value.message
    assert caught.value.exit_code == 3


def test_a_folder_that_cannot_be_written_is_named(settings: Settings) -> None:
    """A state folder that is a file is a clear error."""
    settings.state_dir.write_text("")
    with pytest.raises(StartError, match="cannot be"):
        ensure_server(settings)


def test_a_taken_port(start: Start, model: str) -> None:
    """In the background a free port is taken instead; asked for by name, it is an error."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert ensure_server(start(model=model, port=port)).port != port
        with pytest.raises(StartError, match=str(port)):
            bind(port, or_another=False)


def test_large_logs_are_put_aside(start: Start, settings: Settings, model: str) -> None:
    """A log of more than 5 MB is moved away when a server starts."""
    settings.run_dir.mkdir(parents=True)
    log_file(settings).write_bytes(b"x" * (warm.MAX_LOG_BYTES + 1))
    start(model=model)
    assert log_file(settings).stat().st_size < 10_000
    assert log_file(settings).with_suffix(".log.1").exists()


def test_other_models_are_loaded_when_asked_for(start: Start, model: str, tmp_path: Path) -> None:
    """One model at a time: a request for another one changes the engine, and back."""
    settings = start(model=model)
    other = script(tmp_path, "other", replies={"": "Other."})
    address = ensure_server(settings)
    texts = []
    for name in (None, other, None):
        _, answer = fetch(address, "POST", "/v1/responses", {"input": "hi", "model": name})
        texts.append(answer["output"][0]["content"][0]["text"])
    assert texts == ["Hi.", "Other.", "Hi."]
    _, answer = fetch(
        address,
        "POST",
        "/v1/responses",
        {"input": "hi", "model": other, "previous_response_id": answer["id"]},
    )
    assert answer["output"][0]["content"][0]["text"] == "Other.", (
        "what was said is read anew by the other one"
    )


def test_a_model_that_is_not_here_says_how_to_get_it(start: Start, model: str) -> None:
    """404 with the command that brings it."""
    address = ensure_server(start(model=model))
    status, answer = fetch(address, "POST", "/v1/responses", {"input": "hi", "model": "smollm2-135m"})
    assert (status, answer["error"]["code"]) == (404, "model_not_found")
    assert "vivace models pull smollm2-135m" in answer["error"]["message"]


@pytest.fixture
def shell(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The commands read these settings from the environment."""
    for name in ("cache_dir", "state_dir", "port", "allow_scripted"):
        monkeypatch.setenv(f"VIVACE_{name.upper()}", str(getattr(settings, name)))
    return settings


def run(command: click.Command, *arguments: str) -> str:
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False).output


def test_status_and_stop_commands(shell: Settings, start: Start, model: str) -> None:
    """`status` shows what runs, `stop` ends it, and both are fine with nothing there."""
    assert "No server runs" in run(commands.status)
    assert json.loads(run(commands.status, "--json")) == {"running": False}
    settings = start(model=model)
    pid = until_ready(settings).pid
    shown = run(commands.status)
    assert f"pid {pid}" in shown
    assert model in shown
    told = json.loads(run(commands.status, "--json"))
    assert told["running"]
    assert told["engine"]["kv_cells"] == 4096
    assert f"pid {pid}" in run(commands.stop)
    assert "No server runs" in run(commands.stop)
    assert shell == settings.having(model=shell.model)


@contextmanager
def serving(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """`vivace serve` in a process of its own, from when it has said where it is."""
    code = "from vivace.cli.server.serve import serve; serve()"
    with subprocess.Popen(
        [sys.executable, "-u", "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout
        assert b"http://127.0.0.1:" in process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def test_serve_in_the_foreground(shell: Settings, model: str) -> None:
    """`serve` says where it is, refuses to be a second one, and ends with 0 on Ctrl-C."""
    with serving("--model", model) as process:
        with pytest.raises(StartError, match="runs already"):
            commands.serve.main([], standalone_mode=False)
        assert ensure_server(shell).pid == process.pid
        process.send_signal(2)
        assert process.wait(10) == 0
    assert lock_file(shell).exists()
    assert not server_file(shell).exists()


def test_serve_in_the_foreground_ends_when_idle_only_if_asked(
    shell: Settings, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The idle time of the settings is for servers that commands start: this one outlives it by far."""
    monkeypatch.setenv("VIVACE_IDLE_MINUTES", "0.00001")
    with serving("--model", model) as process:
        until_ready(shell)
        assert process.poll() is None
        process.send_signal(2)
        assert process.wait(60) == 0
    with serving("--model", model, "--idle-minutes", "0.00001") as process:
        assert process.wait(60) == 0

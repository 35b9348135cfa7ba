"""Tasks with models that compute: the default one in its own way, and one behind a stock server."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import TASK
from tests.e2e.pypi import python_path
from tests.e2e.terminal import Home
from tests.server.serving import until
from vivace.config import load_settings
from vivace.models.store import is_present

pytestmark = pytest.mark.thorough
# What llama-cpp-python's own server needs beyond llama.cpp.
STOCK = (
    "fastapi==0.162.4",
    "pydantic-settings==2.16.2",
    "starlette-context==0.5.1",
    "sse-starlette==3.7.0",
    "annotated-doc==0.0.6",
    "python-dotenv==1.2.4",
    "pydantic==2.14.3",
    "pydantic_core==2.50.4",
    "typing-inspection==0.4.5",
    "annotated-types==0.8.0",
)


def test_the_default_model_does_a_task(home: Home) -> None:
    """In the foreground it rewrites the function that is meant; in the background it answers a question."""
    settings = load_settings()
    if not is_present(settings, settings.model):
        pytest.skip(f"{settings.model} is not on this machine (vivace models pull {settings.model})")
    home.extra |= {"VIVACE_CACHE_DIR": str(settings.cache_dir), "VIVACE_THREADS": "0"}
    file = home.work / "task.py"
    file.write_text(TASK)
    done = home.run("run", "make @task.py:show print the title in upper case")
    assert (done.code, ".upper()" in file.read_text()) == (0, True), done.out + done.err
    assert home.run("undo").code == 0
    task = home.run("run", "Which attribute does @task.py:show print?", "--background").out.strip()
    watched = home.run("tasks", "watch", task)
    assert (watched.code, "title" in watched.out) == (0, True), watched.out + watched.err
    assert file.read_text() == TASK


@pytest.fixture
def stock_url(smol: Path, tmp_path: Path) -> Iterator[str]:
    """The URL of llama-cpp-python's own server, with SmolLM2."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    line = [sys.executable, "-m", "llama_cpp.server", "--model", str(smol), "--model_alias", "small"]
    line += ["--host", "127.0.0.1", "--port", str(port), "--n_threads", "1", "--n_ctx", "8192"]
    env = os.environ | {"PYTHONPATH": python_path(*STOCK)}
    log = tmp_path / "stock.log"  # it says more than a pipe holds
    with log.open("wb") as output:
        server = subprocess.Popen(line, env=env, stdout=output, stderr=output)

    def is_listening() -> bool:
        assert server.poll() is None, log.read_text()[-2000:]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(is_listening)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.kill()
        server.wait()


def test_a_stock_server_serves_questions_and_tasks(home: Home, stock_url: str) -> None:
    """A model of an upstream answers, and works on a task with tools to an honest end."""
    config = home.folder / "config" / "vivace"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(
        f'model = "box/small"\n[upstreams.box]\nurl = "{stock_url}"\napi = "chat"\nmodels = ["small"]\n'
    )
    asked = home.run("ask", "What is the capital of France? Answer in one word.")
    assert (asked.code, "Paris" in asked.out) == (0, True), asked.err
    done = home.run("run", "Say hello in one word.", "--max-turns", "2", "--output-format", "stream-json")
    ended = done.event("task.ended")
    assert ended["reason"] in ("completed", "turns", "malformed_calls"), done.out[-2000:]
    assert ended["tokens"] > 0

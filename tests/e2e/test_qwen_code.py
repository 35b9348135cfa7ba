"""Qwen Code from npm, over chat completions: it reads a file, edits it through tools, and says so."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.e2e import npm
from tests.e2e.outside import Outside
from tests.e2e.terminal import DEADLINE_S
from tests.e2e.wiretap import Wiretap
from vivace.client import warm
from vivace.config import Settings

PACKAGE, VERSION = "@qwen-code/qwen-code", "0.15.10"  # the last one for Node.js 20
GUIDE = REPOSITORY / "docs" / "guides" / "openai-sdk.md"
ROOM = 400_000  # tokens: a scripted model's are bytes, and this client sends 80 kB with every request


@pytest.fixture(scope="session")
def program() -> Path:
    return npm.command(PACKAGE, VERSION, "qwen")


@pytest.fixture
def outside() -> Iterator[Outside]:
    outside = Outside()
    yield outside
    outside.close()


def call(name: str, **arguments: str) -> str:
    """A call as the scripted model writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def settings_of_the_guide() -> str:
    found = re.search(r"```json\n(.*?usageStatisticsEnabled.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert found, "the guide has no settings for Qwen Code"
    return found[1]


def test_qwen_code_edits_a_file(program: Path, tmp_path: Path, outside: Outside) -> None:
    """Three requests, the later ones from the earlier ones' KV; the file is changed, nobody else called."""
    work = tmp_path / "work"
    work.mkdir()
    file = work / "a.py"
    file.write_text("import os\nx = 1\n")
    edit = call("edit", file_path=str(file), old_string="x = 1", new_string="x = 2")
    replies = {
        "<tool_response>\nThe file": "x is 2 now.",
        "<tool_response>\nimport os": edit,
        "Make x 2.": f"I read it first.\n{call('read_file', file_path=str(file))}",
    }
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": replies, "context_tokens": ROOM}))
    model = f"scripted:{script}"
    settings = Settings(
        tmp_path / "cache",
        tmp_path / "state",
        model=model,
        port=0,
        threads=1,
        context_tokens=ROOM,
        allow_scripted=True,
    )
    (tmp_path / ".qwen").mkdir()
    (tmp_path / ".qwen" / "settings.json").write_text(settings_of_the_guide())
    address = warm.ensure_server(settings)
    tap = Wiretap(address.port)
    try:
        done = subprocess.run(
            [program, "--auth-type", "openai", "--approval-mode", "yolo", "Make x 2."],
            cwd=work,
            env=outside.env()
            | {
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "OPENAI_BASE_URL": tap.url,
                "OPENAI_API_KEY": address.token,
                "OPENAI_MODEL": model,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    finally:
        tap.close()
        warm.stop_server(settings)
    log = (settings.run_dir / "server.log").read_text()
    assert (done.returncode, done.stdout.strip()) == (0, "x is 2 now."), done.stderr
    assert file.read_text() == "import os\nx = 2\n"
    assert tap.requests == ["POST /v1/chat/completions"] * 3
    assert outside.wanted == []
    turns = re.findall(r"input_tokens=(\d+) cached_tokens=(\d+)", log)
    new = [int(asked) - int(cached) for asked, cached in turns]
    assert new[0] > 10_000, "the first reads everything"
    assert max(new[1:]) < 1000, "the others only what is new"

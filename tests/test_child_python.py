"""Child processes take nothing from the folder that the user happens to be in."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests import REPOSITORY
from tests.server.serving import fetch, script, until, until_ready
from vivace.client import warm
from vivace.config import Settings

HOSTILE = ("socket", "asyncio", "json", "msgspec", "selectors", "numpy", "uvicorn")


def test_a_hostile_folder_reaches_neither_server_nor_engine(settings: Settings, tmp_path: Path) -> None:
    """Served from a folder full of modules with well-known names, an answer comes and none of them ran."""
    settings = settings.having(model=script(tmp_path, replies={"": "Hello there."}))
    folder = tmp_path / "work"
    folder.mkdir()
    ran = tmp_path / "ran"
    for name in HOSTILE:
        (folder / f"{name}.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'a').write('{name}\\n')\n1 / 0\n"
        )
    values = {f"VIVACE_{name.upper()}": getattr(settings, name) for name in settings.__struct_fields__}
    told = {name: str(value) for name, value in values.items() if not isinstance(value, dict)}
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "vivace", "serve"],
        cwd=folder,
        env=os.environ | told,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: server.poll() is not None or warm.find_server(settings))
        until_ready(settings)
        status, body = fetch(warm.ensure_server(settings), "POST", "/v1/responses", {"input": "hi"})
        assert status == 200, body
        assert not ran.exists()
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def test_there_is_one_place_that_builds_a_childs_command() -> None:
    """Nothing in the source names the interpreter or spells `-m` itself."""
    spellings = re.compile(r"sys\.executable|[\"']-m[\"']")
    found = {
        str(file.relative_to(REPOSITORY))
        for file in (REPOSITORY / "src").rglob("*.py")
        if spellings.search(file.read_text("utf-8"))
    }
    assert found <= {"src/vivace/child_python.py"}


def test_what_was_printed_goes_out_before_an_end_at_once() -> None:
    """A buffered line arrives, the code is told, and nothing that waits for the interpreter's end runs."""
    program = (
        "import atexit; from vivace.child_python import exit_at_once; "
        "atexit.register(print, 'taken apart'); print('said'); exit_at_once(7)"
    )
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], env=buffered, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "said\n", "")


def test_an_end_at_once_does_not_mind_that_its_reader_has_left() -> None:
    program = (
        "import os, sys; from vivace.child_python import exit_at_once; reading, writing = os.pipe(); "
        "os.close(reading); sys.stdout = os.fdopen(writing, 'w'); print('said'); exit_at_once(7)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (7, "")

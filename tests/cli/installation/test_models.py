"""`vivace models` as a person sees it, and the progress line."""

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from vivace.cli.installation.models import models
from vivace.cli.show.progress import TerminalProgress
from vivace.engine.tuning import fit
from vivace.engine.tuning.fit import Machine
from vivace.errors import ModelUnavailable, UsageError
from vivace.models.catalog import CATALOG, QWEN, SMOLLM2
from vivace.models.hub.curated import CURATED


@pytest.fixture
def models_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VIVACE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("VIVACE_STATE_DIR", str(tmp_path / "state"))  # a server of the user's may be running
    monkeypatch.delenv("VIVACE_MODEL", raising=False)
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def put(path: Path, size_bytes: int) -> None:
    with path.open("wb") as file:
        file.truncate(size_bytes)


def say(*arguments: str) -> str:
    answer = CliRunner().invoke(models, arguments, catch_exceptions=False, standalone_mode=False)
    return answer.output


@pytest.mark.parametrize("arguments", [[], ["list"]])
def test_list_says_size_licence_and_place(models_dir: Path, arguments: list[str]) -> None:
    """Each model has a line; the used one is marked; one is here and one is on its way."""
    put(models_dir / SMOLLM2.file, SMOLLM2.size_bytes)
    put(models_dir / f"{QWEN.file}.part", QWEN.size_bytes // 4)
    lines = say(*arguments).splitlines()
    assert lines[0].split() == ["NAME", "SIZE", "LICENCE", "SPEED", "WHERE"]
    assert lines[1].split()[:5] == ["*", QWEN.name, "1,117", "MB", "Apache-2.0"]
    assert lines[1].endswith("25% downloaded")
    assert lines[2].split()[:4] == [SMOLLM2.name, "98", "MB", "Apache-2.0"]
    assert lines[2].endswith(str(models_dir / SMOLLM2.file))


@pytest.mark.usefixtures("models_dir")
def test_absent_model_is_not_here() -> None:
    """A model without a file is listed as not here."""
    assert say("list").count("not here") == len(CATALOG) + len(CURATED)


def test_list_says_what_this_machine_can_run(models_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that memory does not hold is too large; of the others the speed is told."""
    machine = Machine("", memory_bytes=16 * 10**9, bytes_per_second=20e9, measured_with="")
    monkeypatch.setattr(fit, "this_machine", lambda _: machine)
    put(models_dir / QWEN.file, QWEN.size_bytes)
    lines = {line.lstrip("* ").split()[0]: line for line in say("list").splitlines() if line.strip()}
    assert "about 18 tok/s" in lines[QWEN.name]
    assert "about 4 tok/s" in lines["qwen2.5-coder-7b"]
    assert "too large: 28.3 of 9.6 GB" in lines["qwen2.5-coder-32b"]


@pytest.mark.usefixtures("models_dir")
def test_list_as_json() -> None:
    """Programs get an object for each model, with what is needed to choose."""
    found = {each["name"]: each for each in map(json.loads, say("--json").splitlines())}
    assert found[QWEN.name]["size_bytes"] == QWEN.size_bytes
    assert {"fits", "tokens_per_second", "is_loaded", "licence", "path"} <= found["gpt-oss-20b"].keys()


def test_pull_of_a_present_model_says_where(models_dir: Path) -> None:
    """Pulling what is there tells its path and downloads nothing."""
    put(models_dir / SMOLLM2.file, SMOLLM2.size_bytes)
    assert str(models_dir / SMOLLM2.file) in say("pull", SMOLLM2.name, "--offline")


@pytest.mark.usefixtures("models_dir")
def test_offline_pull_is_refused() -> None:
    """Offline and absent is an error, not a download."""
    with pytest.raises(ModelUnavailable):
        say("pull", SMOLLM2.name, "--offline")


@pytest.mark.usefixtures("models_dir")
def test_unknown_name_is_a_usage_error() -> None:
    """Names are checked before anything else happens; a path is not a name here."""
    for command in ("pull", "rm"):
        with pytest.raises(UsageError):
            say(command, "/etc/passwd")


def test_rm_frees_the_space(models_dir: Path) -> None:
    """Removing says how much it freed, and does no harm twice."""
    put(models_dir / SMOLLM2.file, SMOLLM2.size_bytes)
    assert say("rm", SMOLLM2.name) == "Removed smollm2-135m: 98 MB freed.\n"
    assert say("rm", SMOLLM2.name) == "smollm2-135m was not here.\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_in_a_pipe_is_plain_lines() -> None:
    """Where nobody looks there is a first and a last line, and nothing that moves."""
    stream = io.StringIO()
    progress = TerminalProgress(stream)
    progress.begin("Work", 1000)
    for _ in range(1000):
        progress.advance(1)
    progress.end()
    assert stream.getvalue() == "Work …\nWork: 100%\n"


def test_progress_on_a_terminal_is_one_line() -> None:
    """On a terminal one line is drawn over and over; the last drawing says how much it was."""
    stream = Terminal()
    progress = TerminalProgress(stream)
    progress.begin("Work", 2_000_000)
    progress.drawn_s = 0.0
    progress.advance(1_000_000)
    progress.advance(1_000_000)
    progress.end()
    assert "█████░░░" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[KWork: 2 MB, 0s\n")
    assert stream.getvalue().count("\n") == 1


def test_progress_of_a_source_that_brought_nothing() -> None:
    """A step that ends where it began says that it was not available."""
    stream = Terminal()
    progress = TerminalProgress(stream)
    progress.begin("From nowhere", 1000)
    progress.end()
    assert stream.getvalue().endswith("From nowhere: not available\n")

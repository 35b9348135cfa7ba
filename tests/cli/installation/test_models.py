"""`vivace models` as a person sees it, and the progress line."""

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.models.hub.fake_hub import gguf
from vivace.cli.installation import model_list
from vivace.cli.installation.models import models
from vivace.cli.show.progress import TerminalProgress
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


LAPTOP = Machine("", memory_bytes=16 * 10**9, bytes_per_second=40e9, measured_with="")


@pytest.mark.parametrize("arguments", [[], ["list"]])
def test_what_is_here_comes_first(models_dir: Path, arguments: list[str]) -> None:
    """A model that is here and one on its way are listed with size and place; what is not here is not."""
    put(models_dir / SMOLLM2.file, SMOLLM2.size_bytes)
    put(models_dir / f"{QWEN.file}.part", QWEN.size_bytes // 4)
    here = say(*arguments).partition("Recommended")[0].splitlines()
    assert here[0] == "On this machine:"
    assert here[1].split()[:4] == ["*", QWEN.name, "1.1", "GB"]
    assert here[2].strip() == "25% downloaded"
    assert here[3].split()[:3] == [SMOLLM2.name, "98", "MB"]
    assert here[4].strip() == str(models_dir / SMOLLM2.file)
    assert here[5:] == [""]


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.usefixtures("models_dir")
def test_the_screen_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """No line is wider than the terminal, and the whole table needs no more than 80 columns."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(model_list, "this_machine", lambda _: LAPTOP)
    assert max(map(len, say().splitlines())) <= columns
    assert max(map(len, say("--all").splitlines())) <= 80


@pytest.mark.usefixtures("models_dir")
def test_what_suits_this_machine_is_recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best that fit and are quick enough, with licence, context, what a steer can do, and drafts."""
    monkeypatch.setattr(model_list, "this_machine", lambda _: LAPTOP)
    recommended = " ".join(say().partition("Recommended")[2].split())
    assert "(16 GB of memory, no NVIDIA GPU)" in recommended
    assert "qwen3.5-4b 2.7 GB about 15 tok/s" in recommended
    assert "Apache-2.0; 262,144 tokens of context; goes back to saved points; has a head for" in recommended
    assert "qwen3.6-27b" not in recommended, "it does not fit"


@pytest.mark.usefixtures("models_dir")
def test_the_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model has a line, with how it would do here."""
    monkeypatch.setattr(model_list, "this_machine", lambda _: LAPTOP)
    lines = {line[2:].split()[0]: line for line in say("--all").splitlines() if line[2:].strip()}
    assert {model.name for model in CATALOG} | {model.name for model in CURATED} <= lines.keys()
    assert "~36 tok/s" in lines[QWEN.name]
    assert "too large" in lines["qwen3.6-27b"]
    assert lines["qwen3.5-4b"].startswith(">")
    assert "saved points  yes  Apache-2.0" in lines["qwen3.5-4b"]


@pytest.mark.usefixtures("models_dir")
def test_what_other_programs_have_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A recommended model that LM Studio has needs no download; others are named below the list."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(model_list, "this_machine", lambda _: LAPTOP)
    studio = tmp_path / ".lmstudio/models/unsloth"
    for repo, file in (("Qwen3.5-4B-GGUF", "Qwen3.5-4B-Q4_K_M"), ("Qwen3.6-27B-GGUF", "Qwen3.6-27B-Q4_K_M")):
        (studio / repo).mkdir(parents=True)
        put(studio / repo / f"{file}.gguf", 10)
    said = " ".join(say().split())
    assert "LM Studio has it: a pull links that file and downloads nothing" in said
    assert "Other programs have these; a pull links them: qwen3.6-27b." in said


@pytest.mark.usefixtures("models_dir")
def test_list_as_json() -> None:
    """Programs get an object for each model, with what is needed to choose."""
    found = {each["name"]: each for each in map(json.loads, say("--json").splitlines())}
    assert found[QWEN.name]["size_bytes"] == QWEN.size_bytes
    keys = {"fits", "tokens_per_second", "is_measured", "is_loaded", "is_recommended", "licence", "path"}
    assert keys | {"steering", "has_mtp", "can_be_adopted_from"} <= found["gpt-oss-20b"].keys()


@pytest.mark.usefixtures("models_dir")
def test_an_adopted_model_is_said_to_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A pull says whose file it links, the list shows it, and `rm` leaves it where it is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    content = gguf()
    theirs = tmp_path / ".lmstudio/models/someone/tiny/tiny-Q4_K_M.gguf"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(content)
    name = "hf:someone/tiny"
    said = say("pull", name, "--offline")
    assert "a link to a file of LM Studio, which was neither copied nor changed" in said
    assert "the one in its card is our own" in said
    assert "(belongs to LM Studio)" in " ".join(say().split())
    assert "The file belongs to LM Studio, and stays." in say("rm", name)
    assert theirs.read_bytes() == content


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

"""What commands say of tuning: the table, doctor, status, and the line after it has changed something."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from vivace.cli import connection
from vivace.cli.installation import tune
from vivace.cli.installation.doctor import doctor
from vivace.cli.server import serve
from vivace.config import Settings
from vivace.engine.tuning import profile
from vivace.engine.tuning.profile import Profile
from vivace.engine.tuning.search.choose import Measured, Round, Variant
from vivace.engine.tuning.search.formats import Likeness
from vivace.errors import UsageError
from vivace.protocol.rundir import news_file
from vivace.protocol.shapes.status import TuningStatus

MB = 1_000_000
ROUND = Round(1600.0, {1: 50.0, 8: 80.0, 16: 100.0, 32: 200.0, 64: 400.0})


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VIVACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("VIVACE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("VIVACE_MODEL", str(tmp_path / "model.gguf"))
    monkeypatch.delenv("VIVACE_THREADS", raising=False)
    return sized(tmp_path / "model.gguf", 1000 * MB)


@pytest.fixture
def settings(tmp_path: Path, model: Path) -> Settings:
    return Settings(cache_dir=tmp_path / "cache", state_dir=tmp_path / "state", model=str(model))


def sized(path: Path, size_bytes: int) -> Path:
    """A file of that size that takes no room."""
    with path.open("wb") as file:
        file.truncate(size_bytes)
    return path


def measured(model: Path) -> Profile:
    """What a tuning would find: the file as downloaded wins against Q8_0; Q4_0 was looked at, too."""
    entries = [
        Measured(Variant("Q4_K_M", str(model), 1100 * MB, "same", True, 2), [ROUND]),
        Measured(Variant("Q4_K_M", str(model), 1100 * MB, "same", False, 2), dropped="no faster (+9%)"),
        Measured(Variant("Q8_0", "/x.gguf", 1900 * MB, "neutral", True, 2), problem="not available: no room"),
        Measured(
            Variant("Q4_0", "/y.gguf", 1000 * MB, "costly", True, 2), [ROUND], Likeness(0.1, 1.02, 0.96, 300)
        ),
    ]
    return replace(
        profile.skipped("m", model, "Q4_K_M as downloaded is best here."),
        state="measured",
        threads=2,
        chunk_tokens=128,
        entries=entries,
        busy_share=0.5,
    )


def tuner(monkeypatch: pytest.MonkeyPatch, work: Callable[[Path], Profile]) -> list[Path]:
    """Let tuning be `work`; the list says for which files it was called."""
    called: list[Path] = []

    def run(settings: Settings, path: Path, **_: bool) -> Profile:
        called.append(path)
        found = work(path)
        profile.write(settings, path, found)
        return found

    monkeypatch.setattr(tune, "_tuned", run)
    return called


def say_doctor(*arguments: str) -> str:
    return CliRunner().invoke(doctor, arguments, catch_exceptions=False, standalone_mode=False).output


@pytest.mark.usefixtures("model")
def test_doctor_says_when_nothing_was_measured() -> None:
    """Not measured is no problem, but doctor says how to do it."""
    said = say_doctor("--quick")
    assert (
        "✓ weights   as downloaded; measured when the server is idle, or now with `vivace doctor --tune`"
        in said
    )


def test_doctor_says_what_was_measured(settings: Settings, model: Path) -> None:
    """Weights with the reason, threads with the word that they were measured."""
    profile.write(settings, model, measured(model))
    said = say_doctor("--quick")
    assert "as downloaded is best here." in said
    assert "✓ threads   2, measured" in said


@pytest.mark.usefixtures("model")
def test_the_table_has_a_line_for_each_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speeds of what was measured, reasons for what was not, a mark at the chosen one, and a busy machine."""
    tuner(monkeypatch, measured)
    lines = say_doctor("--tune").splitlines()
    assert lines[1].split()[:5] == ["*", "Q4_K_M", "as", "downloaded,", "2"]
    assert "160 tok/s" in lines[1]
    assert "20.0 tok/s" in lines[1]
    assert "no faster (+9%)" in lines[2]
    assert "not available: no room" in lines[3]
    assert "differs by 0.100 nats a token; costs quality: never chosen" in lines[4]
    assert "128 tokens at a time" in lines[7]
    assert "busy (50% of its CPUs)" in lines[8]


def test_the_next_command_tells_what_has_changed_once(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server leaves a line; the next command shows it on stderr, and the one after does not."""
    settings.run_dir.mkdir(parents=True)
    news_file(settings).write_text("Measured while idle: Q8_0 is faster.\n")
    connection._tell_news(settings)
    connection._tell_news(settings)
    assert capsys.readouterr().err == "Measured while idle: Q8_0 is faster.\n"


@pytest.mark.parametrize(
    ("tuning", "words"),
    [
        (TuningStatus("waiting"), "waiting: it begins when the server has been idle for a while"),
        (TuningStatus("waiting", text="others use the processor"), "waiting: others use the processor"),
        (TuningStatus("running", 3, 8), "measuring how to run the model best, step 3 of 8"),
        (TuningStatus("done", text="Q8_0 is faster."), "done: Q8_0 is faster."),
        (TuningStatus("off"), 'off (tune = "never" in your settings)'),
        (TuningStatus("failed", text="No room."), "the model is used as downloaded: No room."),
    ],
)
def test_status_says_how_far_tuning_is(tuning: TuningStatus, words: str) -> None:
    """Waiting, running, done: in one line each."""
    assert serve._tuning(tuning) == words


@pytest.mark.usefixtures("model")
def test_all_goes_with_tune() -> None:
    """--all alone is a usage error."""
    with pytest.raises(UsageError):
        say_doctor("--all")

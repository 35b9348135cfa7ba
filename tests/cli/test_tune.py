"""When tuning happens by itself, and what is said of it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from vivace.cli import connection, tune
from vivace.cli.doctor import doctor
from vivace.config import Settings
from vivace.engine.tuning import keys, profile
from vivace.engine.tuning.choose import Measured, Round, Variant
from vivace.engine.tuning.formats import Likeness
from vivace.engine.tuning.profile import Profile
from vivace.errors import UsageError, VivaceError

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


def test_the_first_use_tunes_and_the_second_does_not(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says how long it takes and that Ctrl-C skips it, then what was chosen; and it happens once."""
    called = tuner(monkeypatch, measured)
    tune.tune_once(settings)
    tune.tune_once(settings)
    assert len(called) == 1
    said = capsys.readouterr().err
    assert "about a minute. Ctrl-C skips it" in said
    assert "Q4_K_M as downloaded is best here." in said


@pytest.mark.parametrize("size_bytes", [98 * MB, 20_000 * MB])
def test_small_and_huge_models_are_not_tuned_by_themselves(
    settings: Settings, model: Path, monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    """A small model is quick as it is; a huge one would take minutes that nobody asked for."""
    called = tuner(monkeypatch, measured)
    sized(model, size_bytes)
    tune.tune_once(settings)
    assert called == []


@pytest.mark.parametrize(
    ("tune_setting", "is_watched", "may_tune", "calls"),
    [("auto", True, True, 1), ("auto", False, True, 0), ("never", True, True, 0), ("auto", True, False, 0)],
)
def test_only_where_a_person_watches(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tune_setting: str,
    is_watched: bool,
    may_tune: bool,
    calls: int,
) -> None:
    """Scripts and tests never wait for it, a setting turns it off, and doctor does without."""
    called = tuner(monkeypatch, measured)
    monkeypatch.setattr(connection, "is_watched", lambda: is_watched)
    connection.with_model_here(settings.having(tune=tune_setting), may_tune=may_tune)
    assert len(called) == calls


def test_ctrl_c_skips_it_for_good(
    settings: Settings, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command goes on with the file as downloaded, the next one does not ask, doctor mentions it."""

    def interrupted(_path: Path) -> Profile:
        raise KeyboardInterrupt

    called = tuner(monkeypatch, interrupted)
    tune.tune_once(settings)
    tune.tune_once(settings)
    assert len(called) == 1
    assert "Skipped: the model is used as downloaded" in capsys.readouterr().err
    assert profile.weights_for(settings, model).path == model
    assert "not measured (Skipped at the first start.)" in say_doctor("--quick")


def test_a_failure_never_stops_the_command(
    settings: Settings, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What went wrong is said once, the model is used as downloaded, and the reason is in doctor."""

    def failing(_path: Path) -> Profile:
        raise VivaceError("The disk is full.")

    tuner(monkeypatch, failing)
    tune.tune_once(settings)
    assert "The disk is full. The model is used as downloaded." in capsys.readouterr().err
    assert keys.is_decided(settings, model)
    assert "The disk is full." in say_doctor("--quick")


def say_doctor(*arguments: str) -> str:
    return CliRunner().invoke(doctor, arguments, catch_exceptions=False, standalone_mode=False).output


@pytest.mark.usefixtures("model")
def test_doctor_says_when_nothing_was_measured() -> None:
    """Not measured is no problem, but doctor says how to do it."""
    said = say_doctor("--quick")
    assert "✓ weights   as downloaded, not measured on this machine: `vivace doctor --tune` does it" in said


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


@pytest.mark.usefixtures("model")
def test_all_goes_with_tune() -> None:
    """--all alone is a usage error."""
    with pytest.raises(UsageError):
        say_doctor("--all")

"""Tuning in the background: killed at any stage it goes on from there, and it knows when not to begin."""

import os
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.engine.tuning.fake_children import Q8_0, SOURCE, FakeMachine
from vivace.config import Settings
from vivace.engine.tuning import background, keys, profile
from vivace.engine.tuning.children.child import VariantFailed
from vivace.engine.tuning.children.wire import Requantise, ScoreSample
from vivace.engine.tuning.search.host import Host
from vivace.engine.tuning.tune import tune
from vivace.models import store

PLENTY = 10**12


class Killed(BaseException):
    """In place of SIGKILL."""


class Requests:
    """Counts what is asked of children; kills the tuner at the request of that number."""

    def __init__(self) -> None:
        self.kinds: Counter[type] = Counter()
        self.left = 10**9

    def __call__(self, _name: str, request: object) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed
        self.kinds[type(request)] += 1


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"w" * 1000)
    return path


@pytest.fixture
def settings(tmp_path: Path, model: Path) -> Settings:
    return Settings(cache_dir=tmp_path / "cache", state_dir=tmp_path / "state", threads=2, model=str(model))


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "SMALLEST_BYTES", 1)


def host(machine: FakeMachine, *, busy_share: float = 0.0, steps: list[int] | None = None) -> Host:
    return Host(
        free_bytes=lambda _: PLENTY,
        available_bytes=lambda: PLENTY,
        busy_share=lambda: busy_share,
        start_child=machine.start,
        on_step=lambda number, _: (steps if steps is not None else []).append(number),
    )


def killed_at(number: int, settings: Settings, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune, and be killed at a request: nothing is tidied up behind it."""
    requests = Requests()
    requests.left = number
    machine = FakeMachine(speed={(Q8_0, True, 2): 1.33}, fail=requests)
    with monkeypatch.context() as patch:
        patch.setattr("vivace.engine.tuning.tune.sweep", lambda *_: None)
        with pytest.raises(Killed):
            tune(settings, "m", model, host(machine), is_background=True)


def finished(settings: Settings) -> tuple[background.TuningReport, Requests, FakeMachine]:  # type: ignore[name-defined]
    requests = Requests()
    machine = FakeMachine(speed={(Q8_0, True, 2): 1.33}, fail=requests)
    return background.run(settings, host(machine)), requests, machine


def test_killed_anywhere_it_ends_with_the_same_choice(
    settings: Settings, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whatever request it is killed, the next one finds what an undisturbed one finds."""
    report, whole, _ = finished(settings)
    for number in range(1, whole.kinds.total(), 3):
        keys.profile_path(settings, model).unlink()
        killed_at(number, settings, model, monkeypatch)
        again, _, _ = finished(settings)
        assert (again.state, again.text, again.is_new) == ("done", report.text, True), number
        assert list(store.tuned_dir(settings).glob("*.unfinished")) == [], number


def test_what_was_measured_is_not_measured_again(
    settings: Settings, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after two rounds: no copy is made, nothing is read again, and one round is left."""
    _, whole, _ = finished(settings)
    keys.profile_path(settings, model).unlink()
    assert any(is_in_third_round(number, settings, model, monkeypatch) for number in range(1, 200))
    _, requests, machine = finished(settings)
    assert requests.kinds[Requantise] == 0
    assert requests.kinds[ScoreSample] == 0
    assert machine.prefilled[:2] == [(SOURCE, True), (Q8_0, True)]
    assert whole.kinds[ScoreSample] == 2


def is_in_third_round(number: int, settings: Settings, model: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Start afresh, be killed at that request, and say whether two rounds were kept by then."""
    keys.journal_path(settings, model).unlink(missing_ok=True)
    killed_at(number, settings, model, monkeypatch)
    file = keys.journal_path(settings, model)
    return file.exists() and file.read_text().count("prefill_ms") == 4


def test_steps_are_told_in_order(settings: Settings) -> None:
    """Whoever watches sees step n of m grow."""
    steps: list[int] = []
    background.run(settings, host(FakeMachine(), steps=steps))
    assert steps == sorted(steps)
    assert steps[0] == 1


def test_what_was_decided_is_only_said(settings: Settings) -> None:
    """The second time nothing is measured, and it is not news."""
    first, _, _ = finished(settings)
    second, requests, _ = finished(settings)
    assert (second.state, second.text, second.is_new) == ("done", first.text, False)
    assert requests.kinds.total() == 0


def test_a_busy_machine_is_left_alone(settings: Settings, model: Path) -> None:
    """While others use the processor it begins nothing, and decides nothing."""
    report = background.run(settings, host(FakeMachine(), busy_share=0.9))
    assert report.state == "postponed"
    assert not keys.profile_path(settings, model).exists()


def test_it_does_not_wait_for_another_tuning(settings: Settings, model: Path) -> None:
    """One in the foreground has the lock: it comes back later."""
    descriptor = store.open_tuning_lock(settings, model.stem)
    assert store.try_lock(descriptor)
    try:
        assert background.run(settings, host(FakeMachine())).state == "postponed"
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("size_bytes", [98_000_000, 20_000_000_000])
def test_small_and_huge_models_are_not_tuned_by_themselves(
    settings: Settings, model: Path, monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    """A small model is quick as it is; a huge one takes long and much memory."""
    monkeypatch.undo()
    with model.open("wb") as file:
        file.truncate(size_bytes)
    assert background.run(settings, host(FakeMachine())).state == "unsuited"


def test_a_failure_is_remembered_and_said(settings: Settings, model: Path) -> None:
    """A file that cannot be measured is not tried at every idle minute, and the reason stays to be seen."""

    def fail(_name: str, _request: object) -> None:
        raise VariantFailed("it crashed")

    first = background.run(settings, host(FakeMachine(fail=fail)))
    assert (first.state, "it crashed" in first.text) == ("failed", True)
    kept = profile.read(settings, model)
    assert kept
    assert replace(kept, when="").state == "skipped"
    assert background.run(settings, host(FakeMachine())).state == "failed"

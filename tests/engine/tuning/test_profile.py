"""When a measurement is believed."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from vivace.config import Settings
from vivace.engine.tuning import keys, profile
from vivace.engine.tuning.profile import Profile, weights_for
from vivace.models import store


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache_dir=tmp_path / "cache", state_dir=tmp_path / "state")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights" * 100)
    return path


def remember(settings: Settings, model: Path, **changes: Any) -> Profile:
    """A measurement that chose a made file with four threads."""
    made = store.tuned_dir(settings) / f"{keys.file_prefix(model)}.Q8_0.gguf"
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_bytes(b"made")
    found = replace(
        profile.skipped("m", model, "why"),
        state="measured",
        made_file=made.name,
        made_bytes=4,
        threads=4,
        use_extra_bufts=False,
        chunk_tokens=128,
        step_costs={1: 50.0, 16: 120.0},
        **changes,
    )
    profile.write(settings, model, found)
    return found


def test_what_was_measured_is_used(settings: Settings, model: Path) -> None:
    """The engine gets the made file and everything that was found best with it."""
    found = remember(settings, model)
    made = store.tuned_dir(settings) / found.made_file
    assert weights_for(settings, model) == (made, 4, False, 128, {1: 50.0, 16: 120.0})
    assert keys.profile_path(settings, model).exists()


def test_without_a_measurement_the_file_is_used_as_it_is(settings: Settings, model: Path) -> None:
    """No profile: the file as downloaded, threads by the machine, nothing known of costs."""
    assert weights_for(settings, model) == (model, 0, True, 0, {})
    assert not keys.profile_path(settings, model).exists()


def test_the_users_threads_win(settings: Settings, model: Path) -> None:
    """A number of threads in the settings is taken, and costs measured with another number are not."""
    remember(settings, model)
    weights = weights_for(settings.having(threads=2), model)
    assert (weights.threads, weights.step_costs, weights.path.suffix) == (2, {}, ".gguf")
    assert weights_for(settings.having(threads=4), model).step_costs


def test_threads_that_were_only_set_do_not_stay(settings: Settings, model: Path) -> None:
    """Tuned while the user had set a number: without the setting the machine decides again."""
    remember(settings, model, is_threads_given=True)
    assert weights_for(settings, model).threads == 0
    assert weights_for(settings.having(threads=4), model).step_costs


@pytest.mark.parametrize("changed", ["machine_key", "library_version"])
def test_other_circumstances_are_not_believed(
    settings: Settings, model: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """A profile of another machine or another llama.cpp is as good as none."""
    remember(settings, model)
    monkeypatch.setattr(keys, changed, lambda: "other")
    monkeypatch.setattr(profile, changed, lambda: "other")
    assert weights_for(settings, model).path == model
    assert not keys.profile_path(settings, model).exists()


def test_another_file_of_the_same_name_is_not_believed(settings: Settings, model: Path) -> None:
    """A file of the same name and size with another beginning, middle or end has no profile."""
    remember(settings, model)
    model.write_bytes(b"weightz" * 100)
    assert weights_for(settings, model).path == model


def test_made_weights_that_are_gone_or_cut_are_not_used(settings: Settings, model: Path) -> None:
    """Someone deleted or shortened the made file: the file as downloaded is used."""
    made = store.tuned_dir(settings) / remember(settings, model).made_file
    made.write_bytes(b"mad")
    assert weights_for(settings, model).path == model
    made.unlink()
    assert weights_for(settings, model).path == model


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model": 3}', "\x00\xff"])
def test_a_broken_profile_is_no_profile(settings: Settings, model: Path, text: str) -> None:
    """Whatever is in the file, the model starts as downloaded."""
    remember(settings, model)
    keys.profile_path(settings, model).write_text(text)
    assert weights_for(settings, model).path == model


def test_a_skipped_tuning_is_remembered_and_not_used(settings: Settings, model: Path) -> None:
    """Skipping decides: nobody is asked again, and the file is used as downloaded."""
    profile.write(settings, model, profile.skipped("m", model, "Skipped."))
    assert keys.profile_path(settings, model).exists()
    assert weights_for(settings, model).path == model


def test_never_means_never(settings: Settings, model: Path) -> None:
    """With tune = never even a good profile is not used: the way back to the file as downloaded."""
    remember(settings, model)
    assert weights_for(settings.having(tune="never"), model).path == model


def test_a_link_is_the_file_it_leads_to(settings: Settings, model: Path, tmp_path: Path) -> None:
    """The command line may name a link where the server knows the file."""
    found = remember(settings, model)
    link = tmp_path / "link.gguf"
    link.symlink_to(model)
    assert weights_for(settings, link).path.name == found.made_file

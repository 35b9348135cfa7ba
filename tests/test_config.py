"""Settings: defaults, file, environment, flags."""

from pathlib import Path

import pytest

from vivace.config import Settings, load_settings
from vivace.errors import ConfigError


def home(tmp_path: Path, text: str = "") -> dict[str, str]:
    folder = tmp_path / ".config" / "vivace"
    folder.mkdir(parents=True)
    if text:
        (folder / "config.toml").write_text(text)
    return {"HOME": str(tmp_path)}


def test_later_sources_win(tmp_path: Path) -> None:
    """Environment over file over default; flags over all."""
    env = home(tmp_path, 'model = "from-file"\nthreads = 3\n')
    assert load_settings(env).threads == 3
    settings = load_settings(env | {"VIVACE_MODEL": "from-env"})
    assert settings.model == "from-env"
    assert settings.having(model="from-flag", port=None).model == "from-flag"


def test_folders_follow_xdg(tmp_path: Path) -> None:
    """Cache and state lie where the XDG variables say, or in the home folder."""
    env = home(tmp_path)
    assert load_settings(env).models_dir == tmp_path / ".cache/vivace/models"
    assert load_settings(env | {"XDG_CACHE_HOME": "/c"}).cache_dir == Path("/c/vivace")


@pytest.mark.parametrize(
    ("text", "said"),
    [("modle = 'x'\n", "modle"), ("threads = 'many'\n", "threads"), ("threads = \n", "config.toml")],
)
def test_what_is_not_understood_is_said(tmp_path: Path, text: str, said: str) -> None:
    """An unknown key, a wrong type and broken TOML are errors that name the place."""
    with pytest.raises(ConfigError) as caught:
        load_settings(home(tmp_path, text))
    assert said in caught.value.message


def test_numbers_and_truths_come_from_the_environment(tmp_path: Path) -> None:
    """Variables are text; they become what the setting is."""
    settings = load_settings(home(tmp_path) | {"VIVACE_PORT": "9000", "VIVACE_OFFLINE": "1"})
    assert (settings.port, settings.offline) == (9000, True)


def test_tiers_name_a_model_each(tmp_path: Path) -> None:
    """The realtime tier's model is `model`, the background tier's works on tasks, and a flag goes first."""
    upstream = '[upstreams.box]\nurl = "http://127.0.0.1:1/v1"\n'
    env = home(tmp_path, upstream + '[tiers]\nrealtime = "small"\nbackground = "box/big"\n')
    settings = load_settings(env)
    assert (settings.model, settings.model_of("background")) == ("small", "box/big")
    assert settings.for_tier("background").model == "box/big"
    assert settings.for_tier("background").having(model="flag").model == "flag"
    assert load_settings(env | {"VIVACE_MODEL": "other"}).model == "other"


def test_without_tiers_one_model_serves_both(tmp_path: Path) -> None:
    """A model that was named serves both tiers; a background tier alone leaves realtime as it is."""
    settings = load_settings(home(tmp_path, 'model = "one"\n'))
    assert settings.for_tier("background") == settings
    assert settings.model_of("realtime") == "one"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[tiers]\nbackground = "box/big"\n', 'there is no upstream "box"'),
        ('[tiers]\nfast = "small"\n', "tiers"),
        ('[tiers]\nbackground = 3\n[upstreams.box]\nurl = "x"\n', "tiers"),
        ('model = "a"\n[tiers]\nrealtime = "b"\n', "two models for realtime"),
        ('tiers = "b"\n', "tiers"),
    ],
)
def test_tiers_that_cannot_be_served_are_refused(tmp_path: Path, text: str, said: str) -> None:
    """An upstream that is not there, an unknown tier and two models for one tier are errors."""
    with pytest.raises(ConfigError) as caught:
        load_settings(home(tmp_path, text))
    assert said in caught.value.message


@pytest.mark.parametrize("device", ["auto", "cpu", "metal", "cuda", "cuda:1", "vulkan", "vulkan:0"])
def test_devices(device: str, tmp_path: Path) -> None:
    """A kind of device, or one of several."""
    assert load_settings({"HOME": str(tmp_path), "VIVACE_DEVICE": device}).device == device


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cpu:1", "CUDA", "cuda:-1"])
def test_what_is_no_device_is_refused(device: str, tmp_path: Path) -> None:
    """With those that there are."""
    with pytest.raises(ConfigError, match="there is no device") as refused:
        load_settings({"HOME": str(tmp_path), "VIVACE_DEVICE": device})
    assert '"cuda:1" is the second NVIDIA GPU' in refused.value.hint


def test_gpus(tmp_path: Path) -> None:
    """All, a number of them as a number or a text, or some by their indices; nothing else."""
    for gpus in ("auto", "2", "0,2"):
        assert load_settings({"HOME": str(tmp_path), "VIVACE_GPUS": gpus}).gpus == gpus
    assert Settings(tmp_path, tmp_path).having(gpus=2).gpus == "2"
    for gpus in ("0", "all", "1,", "-1"):
        with pytest.raises(ConfigError, match="names no GPUs"):
            load_settings({"HOME": str(tmp_path), "VIVACE_GPUS": gpus})

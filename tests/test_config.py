"""Settings: defaults, file, environment, flags."""

from pathlib import Path

import pytest

from vivace.config import load_settings
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

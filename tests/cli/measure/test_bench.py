"""The benches fetch their model like every other command."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from vivace.cli.measure.bench import bench
from vivace.errors import ModelUnavailable


@pytest.mark.parametrize(
    "arguments",
    [("wire", "--quick"), ("engine", "--quick"), ("engine", "--model", "smollm2-135m")],
)
def test_a_missing_model_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """It is refused only because the settings forbid the network."""
    monkeypatch.setenv("VIVACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("VIVACE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("VIVACE_OFFLINE", "true")
    with pytest.raises(ModelUnavailable, match="offline is set"):
        CliRunner().invoke(bench, arguments, catch_exceptions=False, standalone_mode=False)

"""Shared by all tests: settings in a folder of their own, and the small real model."""

import os
import signal
from pathlib import Path

import pytest

from vivace.config import Settings, load_settings
from vivace.models.download import ensure
from vivace.models.progress import Silent


def pytest_configure() -> None:
    """Give Ctrl-C back to the programs that tests start, where the check itself is to ignore it.

    A shell starts `./check &` with SIGINT ignored, and a child inherits that through exec. A handler is not
    inherited: one that does nothing leaves this process deaf and gives its children the default.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda _number, _frame: None)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings that touch nothing of the user's."""
    return Settings(
        cache_dir=tmp_path / "cache", state_dir=tmp_path / "state", port=0, threads=1, allow_scripted=True
    )


@pytest.fixture(scope="session")
def smol() -> Path:
    """SmolLM2-135M, for tests that need real tokens; VIVACE_TEST_MODEL names a file to use instead."""
    given = os.environ.get("VIVACE_TEST_MODEL")
    return Path(given) if given else ensure(load_settings(), "smollm2-135m", Silent())

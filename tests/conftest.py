"""Shared by all tests: the tier of each, settings in a folder of their own, and the small real model."""

import functools
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import REPOSITORY, shallow_model, thorough
from tests.fuzz import longer
from vivace.config import Settings, load_settings
from vivace.models.download import ensure
from vivace.models.progress import Silent

# One thread for torch and numpy, here and in programs that tests start: there are workers for all cores,
# and a second thread of either spins while it waits. Read when the libraries are loaded.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

# The tier of a folder's tests; the longest path that fits decides. What is not named here is a unit test,
# unless it takes one of these fixtures or is marked.
FIXTURES = {"served": "served", "smol": "computed", "shallow": "computed"}
TIERS = {
    "acp": "served",
    "agent/conversation": "served",
    "agent/loop": "served",
    "agent/sandbox": "served",
    "agent/workflows": "served",
    "bench": "computed",
    "cli": "served",
    "client": "served",
    "e2e": "served",
    "editors": "served",
    "engine": "computed",
    "engine/speculation": "unit",
    "engine/wire": "unit",
    "models": "computed",
    "server": "served",
    "setup": "served",
    "training": "computed",
    "tui": "served",
    "web": "served",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its tier. Measure coverage of the unit tier only, and run it last.

    The other tiers run much of their code in processes that are not traced. Several workers end at about the
    same time if what is quick comes last. First come files that wait for programs and downloads, each
    followed by one that computes, so that no core has nothing to do. Before all of them come those that fork
    hundreds of times: a worker that has run for minutes has ten times the memory to copy.
    """
    thorough.deselect(config, items)
    longer.mark(items)
    tiers = {item: _tier(item) for item in items}
    for item, tier in tiers.items():
        item.add_marker(tier)
        if tier != "unit":
            item.add_marker("no_cover")
    files = dict.fromkeys(item.path for item in items)
    slow = [[path for path in files if part in path.parts] for part in ("e2e", "cuda")]
    places = {path: place for paths in slow for place, path in enumerate(paths)}
    behind = len(places)
    forking = {item.path for item in items if item.get_closest_marker("forks")}
    items.sort(
        key=lambda item: (
            item.path not in forking,
            tiers[item] == "unit",
            places.get(item.path, behind),
        )
    )


def _tier(item: pytest.Item) -> str:
    marked = next((mark.name for mark in item.iter_markers() if mark.name in set(TIERS.values())), None)
    if tier := marked or _tier_of_folder(item.path):
        return tier
    needed = [tier for name, tier in FIXTURES.items() if name in getattr(item, "fixturenames", ())]
    return needed[-1] if needed else "unit"


@functools.cache
def _tier_of_folder(file: Path) -> str | None:
    place = file.relative_to(REPOSITORY / "tests").as_posix()
    fitting = [folder for folder in TIERS if place.startswith(f"{folder}/")]
    return TIERS[max(fitting, key=len)] if fitting else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough", action="store_true", help="try more: ten times the examples, and the default model"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose how much to try. Give Ctrl-C back to programs that tests start if the check ignores it.

    A shell starts `./check &` with SIGINT ignored, and a child inherits that through exec. A handler is not
    inherited: one that does nothing leaves this process deaf and gives its children the default.
    """
    gc.disable()  # until all modules are imported: 3 of 18 s
    thorough.choose(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda _number, _frame: None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Give each fuzzed test its share of time. Collect garbage from now on, but not what was imported."""
    if session.config.getoption("--thorough"):
        longer.share(session.items)
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Repeat a fuzzed test until its share of time is used up."""
    began = longer.begin(pyfuncitem)
    result = yield
    longer.go_on(pyfuncitem, began)
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was fuzzed, and from which seed."""
    for line in longer.summary(terminalreporter):
        terminalreporter.write_line(line)


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


@pytest.fixture(scope="session")
def shallow(smol: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of SmolLM2, for tests of what happens around a model that computes."""
    return shallow_model.cut(smol, tmp_path_factory.mktemp("shallow") / "shallow.gguf", 2)

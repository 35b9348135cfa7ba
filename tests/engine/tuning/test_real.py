"""Tuning with real weights: SmolLM2, real children, real deaths."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.tuning.fake_children import FakeMachine
from vivace.config import Settings
from vivace.engine.tuning import keys
from vivace.engine.tuning.children.child import COMMAND, Child, VariantFailed
from vivace.engine.tuning.children.wire import Done, Load, Passes, Requantise, Scores, ScoreSample, Times
from vivace.engine.tuning.profile import Profile, tuned, weights_for
from vivace.engine.tuning.search import measure
from vivace.engine.tuning.search.choose import PASS_TOKENS
from vivace.engine.tuning.search.formats import COSTLY, Q8_0, Format, Likeness, compare, quality_problem
from vivace.engine.tuning.search.host import Host
from vivace.engine.tuning.search.requantise import make
from vivace.engine.tuning.tune import tune
from vivace.errors import VivaceError
from vivace.models import store
from vivace.models.progress import Silent

DEADLINE_S = 120.0
Q2_K = Format("Q2_K", 10, 3.0, "costly")


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.005)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child()
    yield child
    child.close()


@pytest.fixture(scope="module")
def tuned_shallow(shallow: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, Profile]:
    """A whole tuning, with no more rounds than there must be."""
    folder = tmp_path_factory.mktemp("tuned")
    settings = Settings(cache_dir=folder / "cache", state_dir=folder / "state", threads=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "ROUNDS_S", 0.0)
        return settings, tune(settings, "shallow", shallow, Host())


def test_a_real_model_is_tuned(tuned_shallow: tuple[Settings, Profile], shallow: Path) -> None:
    """The whole way: every pass size has a cost, the choice has a reason, and what it names is there."""
    settings, profile = tuned_shallow
    assert sorted(profile.step_costs) == list(PASS_TOKENS)
    assert all(ms > 0 for ms in profile.step_costs.values())
    assert profile.chunk_tokens in (64, 128, 256, 512)
    assert profile.why.endswith(".")
    assert tuned(settings, shallow) == profile
    assert weights_for(settings, shallow).path.stat().st_size > 0


def test_nothing_unused_stays(tuned_shallow: tuple[Settings, Profile]) -> None:
    """After a tuning there are the profile, the lock, and the made file only if it was chosen."""
    settings, profile = tuned_shallow
    found = {file.name for file in store.tuned_dir(settings).iterdir() if not file.name.startswith(".")}
    profiles = {name for name in found if name.endswith(".json")}
    assert len(profiles) == 1
    assert found - profiles == ({profile.made_file} if profile.made_file else set())


def sample_scores(path: Path) -> Scores:
    child = Child()
    child.ask(Load(str(path), use_extra_bufts=True, threads=1), Done)
    scores = child.ask(ScoreSample(), Scores)
    child.close()
    return scores


@pytest.fixture(scope="module")
def downloaded_scores(smol: Path) -> Scores:
    """What the file as downloaded gives the sample text."""
    return sample_scores(smol)


def likeness(downloaded: Scores, smol: Path, folder: Path, format: Format) -> Likeness:
    target = folder / f"{format.name}.gguf"
    make(smol, target, format, 150_000_000, Host())
    return compare(downloaded, sample_scores(target))


def test_q8_0_of_a_coarse_file_passes_the_guard(
    downloaded_scores: Scores, smol: Path, tmp_path: Path
) -> None:
    """Requantised to finer steps, the model says what it said."""
    found = likeness(downloaded_scores, smol, tmp_path, Q8_0)
    assert quality_problem(found) == "", found
    assert found.same_choice > 0.9


@pytest.mark.parametrize("format", [COSTLY[0], Q2_K], ids=lambda format: format.name)
def test_a_lossy_format_does_not_pass_the_guard(
    downloaded_scores: Scores, smol: Path, tmp_path: Path, format: Format
) -> None:
    """Weights that lost information are found out by the sample."""
    found = likeness(downloaded_scores, smol, tmp_path, format)
    assert "costs quality" in quality_problem(found), found


def test_a_killed_child_costs_one_variant(child: Child, smol: Path) -> None:
    """kill -9, as when memory runs out: the one who asks hears of it at once, and in plain words."""
    child.ask(Load(str(smol), use_extra_bufts=True, threads=1), Done)
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(VariantFailed, match="killed, most likely for lack of memory"):
        child.ask(Passes([1]), Times)


def test_a_file_that_is_no_model_is_said(child: Child, tmp_path: Path) -> None:
    """The child survives and says what is wrong."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but not really")
    with pytest.raises(VariantFailed, match="could not load"):
        child.ask(Load(str(broken), use_extra_bufts=True, threads=1), Done)
    assert is_alive(child.pid)


def test_an_unreadable_model_is_an_error_for_people(settings: Settings, tmp_path: Path) -> None:
    """Tuning what is no model names the file and says that nothing was changed."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but not really")
    with pytest.raises(VivaceError, match=r"broken\.gguf cannot be measured") as caught:
        tune(settings, "broken", broken, Host())
    assert "used as downloaded" in caught.value.hint
    assert not keys.profile_path(settings, broken).exists()


def test_a_child_never_outlives_its_tuner(smol: Path) -> None:
    """kill -9 of the tuner: its child sees the end of the pipe and ends."""
    code = f"""
import time
from vivace.engine.tuning.children.child import Child
from vivace.engine.tuning.children.wire import Done, Load
child = Child()
child.ask(Load({str(smol)!r}, True, 1), Done)
print(child.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as tuner:
        assert tuner.stdout is not None
        pid = int(tuner.stdout.readline())
        tuner.kill()
    wait_until(lambda: not is_alive(pid), "the end of the child")


@pytest.mark.skipif(sys.platform == "darwin", reason="ulimit -f counts otherwise")
def test_a_full_disk_leaves_no_half_file(smol: Path, tmp_path: Path) -> None:
    """A file that cannot be written to its end: the reason is said and nothing is left."""
    limited = ("sh", "-c", f"ulimit -f 20000; exec {' '.join(COMMAND)}")
    target = tmp_path / "made" / "smol.Q8_0.gguf"
    with pytest.raises(VariantFailed, match="could not write it"):
        make(smol, target, Q8_0, 150_000_000, Host(start_child=lambda: Child(limited)))
    assert list(target.parent.iterdir()) == []


def test_a_disk_without_room_is_not_even_begun(smol: Path, tmp_path: Path) -> None:
    """The space is checked first, with room to spare."""
    machine = FakeMachine()
    host = Host(free_bytes=lambda _: 600_000_000, start_child=machine.start)
    with pytest.raises(VariantFailed, match=r"which has 0\.6 GB free"):
        make(smol, tmp_path / "x.gguf", Q8_0, 150_000_000, host)
    assert machine.started == 0


def test_a_killed_quantisation_leaves_no_half_file(smol: Path, tmp_path: Path) -> None:
    """kill -9 of the child that writes: the beginning of its file is deleted."""
    target = tmp_path / "smol.Q8_0.gguf"
    children: list[Child] = []

    def start() -> Child:
        children.append(Child())
        return children[-1]

    class Watcher(Silent):
        def advance(self, size_bytes: int) -> None:
            if size_bytes > 0:
                os.kill(children[-1].pid, signal.SIGKILL)

    with pytest.raises(VariantFailed, match="killed"):
        make(smol, target, Q8_0, 150_000_000, Host(progress=Watcher(), start_child=start))
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_leaves_no_half_file(settings: Settings, smol: Path) -> None:
    """Ctrl-C while the copy is written: no beginning, no copy, no profile, no child."""
    code = f"""
from pathlib import Path
from vivace.config import Settings
from vivace.engine.tuning.search.host import Host
from vivace.engine.tuning.tune import tune
settings = Settings(cache_dir=Path({str(settings.cache_dir)!r}), state_dir=Path("/nowhere"), threads=1)
tune(settings, "smol", Path({str(smol)!r}), Host())
"""
    folder = store.tuned_dir(settings)
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as tuner:
        wait_until(lambda: list(folder.glob("*.part")), "a beginning of the copy")
        tuner.send_signal(signal.SIGINT)
        assert tuner.stderr is not None
        assert b"KeyboardInterrupt" in tuner.stderr.read()
    assert [file.name for file in folder.iterdir()] == [f".{smol.stem}.lock"]


def test_two_tunings_at_once_measure_once(settings: Settings, tmp_path: Path) -> None:
    """The second waits for the first and takes over what it found."""
    model = tmp_path / "model.gguf"
    model.write_bytes(b"w" * 1000)
    is_waiting, found = threading.Event(), []

    class Watcher(Silent):
        def begin(self, label: str, total_bytes: int) -> None:
            assert (label, total_bytes) == ("Waiting for another tuning of this model", 0)
            is_waiting.set()

    other = FakeMachine()
    host = Host(progress=Watcher(), start_child=other.start)
    second = threading.Thread(target=lambda: found.append(tune(settings, "m", model, host)))

    def start_second_and_wait(_name: str, request: object) -> None:
        if isinstance(request, Requantise):
            second.start()
            assert is_waiting.wait(DEADLINE_S)

    first = FakeMachine(fail=start_second_and_wait)
    profile = tune(settings, "m", model, Host(busy_share=lambda: 0.0, start_child=first.start))
    second.join(DEADLINE_S)
    assert found == [profile]
    assert other.started == 0

"""The search between variants on machines of our making: nothing is computed, every time is given."""

from pathlib import Path

import pytest

from tests.engine.tuning.fake_children import Q8_0, SOURCE, FakeMachine
from vivace.config import Settings
from vivace.engine.tuning import keys
from vivace.engine.tuning.children.child import VariantFailed
from vivace.engine.tuning.children.wire import Describe, Load, Prefill, Requantise, ScoreSample
from vivace.engine.tuning.profile import Profile, weights_for
from vivace.engine.tuning.search import search
from vivace.engine.tuning.search.choose import Measured
from vivace.engine.tuning.search.formats import Format
from vivace.engine.tuning.search.host import Host
from vivace.engine.tuning.tune import tune
from vivace.errors import VivaceError
from vivace.models import store

PLENTY = 10**12


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache_dir=tmp_path / "cache", state_dir=tmp_path / "state", threads=2)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"w" * 1000)
    return path


def host(machine: FakeMachine, *, disk: int = PLENTY, memory: int = PLENTY) -> Host:
    return Host(
        free_bytes=lambda _: disk,
        available_bytes=lambda: memory,
        busy_share=lambda: 0.0,
        start_child=machine.start,
    )


def run(settings: Settings, model: Path, machine: FakeMachine, **limits: int) -> Profile:
    found = tune(settings, "m", model, host(machine, **limits))
    assert machine.alive == 0, "every child is ended"
    return found


def entry(profile: Profile, format: str, *, repacked: bool = True) -> Measured:
    (found,) = [
        each
        for each in profile.entries
        if (each.variant.format, each.variant.use_extra_bufts, each.variant.threads) == (format, repacked, 2)
    ]
    return found


def made(settings: Settings) -> list[str]:
    return [file.suffixes[-2] for file in store.tuned_dir(settings).glob("*.gguf")]


def fail_for(name: str, kind: type, why: str = "it crashed") -> FakeMachine:
    def fail(asked: str, request: object) -> None:
        if asked == name and isinstance(request, kind):
            raise VariantFailed(why)

    return FakeMachine(fail=fail)


def test_the_faster_format_is_made_kept_and_used(settings: Settings, model: Path) -> None:
    """Q8_0 a third faster: it is chosen, its file stays, and the engine is told to load it."""
    machine = FakeMachine(speed={(Q8_0, True, 2): 1.33})
    profile = run(settings, model, machine)
    assert profile.format == "Q8_0"
    assert "25% less time" in profile.why
    assert weights_for(settings, model).path.read_bytes() == b"q" * 1700
    assert weights_for(settings, model).step_costs == pytest.approx(
        {n: (60 + 8 * n) / 1.33 for n in (1, 2, 4, 8, 16, 32, 64)}
    )


def test_a_format_that_loses_leaves_nothing_behind(settings: Settings, model: Path) -> None:
    """Q8_0 slower: the file as downloaded is used and the made file is deleted."""
    profile = run(settings, model, FakeMachine(speed={(Q8_0, True, 2): 0.7}))
    assert (profile.made_file, made(settings)) == ("", [])
    assert "slower" in entry(profile, "Q8_0").dropped


def test_not_repacked_is_used_where_it_is_faster(settings: Settings, model: Path) -> None:
    """On a CPU whose special kernels lose, the file as downloaded is used without them."""
    speed = {(name, False, 2): 1.2 for name in (SOURCE, Q8_0)}
    profile = run(settings, model, FakeMachine(speed=speed))
    assert (profile.made_file, profile.use_extra_bufts) == ("", False)


def test_rounds_go_around_all_variants(settings: Settings, model: Path) -> None:
    """Variants take turns, so that a slow minute meets all of them."""
    machine = FakeMachine(speed={(Q8_0, True, 2): 1.33})
    run(settings, model, machine)
    assert machine.prefilled[:4] == [(SOURCE, True), (Q8_0, True)] * 2


def test_a_format_that_changes_the_text_is_refused(settings: Settings, model: Path) -> None:
    """However fast, a variant that reads the sample otherwise is refused, for that reason."""
    profile = run(settings, model, FakeMachine(speed={(Q8_0, True, 2): 5.0}, change={Q8_0: 0.2}))
    assert profile.made_file == ""
    assert "costs quality" in entry(profile, "Q8_0").problem
    assert "costs quality" in profile.why


def test_costly_formats_are_shown_and_never_chosen(settings: Settings, model: Path) -> None:
    """With --all they are measured, even if the sample does not betray them, and their files go again."""
    machine = FakeMachine(speed={(name, True, 2): 9.0 for name in ("Q4_0", "IQ4_NL")})
    profile = tune(settings, "m", model, host(machine), with_costly=True)
    assert entry(profile, "Q4_0").rounds
    assert (profile.made_file, made(settings)) == ("", [])


def test_no_space_is_said_and_the_rest_is_measured(settings: Settings, model: Path) -> None:
    """Without room for a second file, threads, chunks and costs of the file as downloaded are still found."""
    profile = run(settings, model, FakeMachine(), disk=1000)
    assert "GB free" in profile.why
    assert profile.step_costs
    assert profile.chunk_tokens == 64


def test_variants_that_do_not_fit_together_come_one_after_the_other(settings: Settings, model: Path) -> None:
    """With memory for one only, no two are ever loaded at once, and the choice is the same."""
    machine = FakeMachine(speed={(Q8_0, True, 2): 1.33})
    profile = run(settings, model, machine, memory=500_000_000)
    assert machine.most_alive == 1
    assert profile.format == "Q8_0"


def test_a_variant_too_large_for_memory_is_left_out(
    settings: Settings, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would not fit is not loaded, and the reason is in the table."""
    monkeypatch.setattr("vivace.engine.tuning.search.measure.OVERHEAD_BYTES", 0)
    profile = run(settings, model, FakeMachine(speed={(Q8_0, True, 2): 2.0}), memory=1200)
    assert profile.made_file == ""
    assert "of memory" in entry(profile, "Q8_0").problem


@pytest.mark.parametrize("request_kind", [Load, Prefill])
def test_a_variant_that_crashes_is_left_out(settings: Settings, model: Path, request_kind: type) -> None:
    """A crash while loading or measuring costs that variant, not the tuning."""
    profile = run(settings, model, fail_for(Q8_0, request_kind, "llama.cpp crashed (SIGILL)"))
    assert profile.made_file == ""
    assert "SIGILL" in entry(profile, "Q8_0").problem


def test_a_failed_quantisation_is_left_out(settings: Settings, model: Path) -> None:
    """If the other format cannot be written, the file as downloaded is measured alone."""
    profile = run(settings, model, fail_for(SOURCE, Requantise, "llama.cpp could not write it"))
    assert "could not write it" in profile.why


def test_special_kernels_that_crash_are_avoided(settings: Settings, model: Path) -> None:
    """If the file as downloaded only works without repacking, that is how it is run from now on."""
    machine = FakeMachine()

    def start() -> object:
        child = machine.start()
        answer = child.ask

        def ask(request: object, *rest: object, **more: object) -> object:
            if isinstance(request, Load) and request.use_extra_bufts:
                raise VariantFailed("llama.cpp crashed (SIGILL)")
            return answer(request, *rest, **more)

        child.ask = ask
        return child

    found = Host(available_bytes=lambda: PLENTY, busy_share=lambda: 0.0, start_child=start)  # type: ignore[arg-type]
    profile = tune(settings, "m", model, found)
    assert (profile.made_file, profile.use_extra_bufts) == ("", False)


def test_what_could_not_be_compared_is_not_used(settings: Settings, model: Path) -> None:
    """If the file as downloaded cannot read the sample, no made file can be shown to be the same model."""
    machine = fail_for(SOURCE, ScoreSample)
    machine.speed = {(Q8_0, True, 2): 3.0}
    with pytest.raises(VivaceError, match="cannot be measured"):
        run(settings, model, machine)


def test_a_file_that_cannot_be_loaded_is_an_error(settings: Settings, model: Path) -> None:
    """If the file as downloaded itself fails there is nothing to tune; nothing is written."""
    with pytest.raises(VivaceError, match="no GGUF") as caught:
        run(settings, model, fail_for(SOURCE, Describe, "no GGUF file"))
    assert "used as downloaded" in caught.value.hint
    assert not keys.profile_path(settings, model).exists()


def test_more_or_fewer_threads_are_tried(
    settings: Settings, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The winner is tried with other numbers of threads; the best one is kept, with its own costs."""
    monkeypatch.setattr(search, "choose_threads", lambda _wanted: 4)
    monkeypatch.setattr(search, "usable_cpus", lambda: 8)
    machine = FakeMachine(speed={(Q8_0, True, 4): 1.5, (Q8_0, True, 3): 1.2, (Q8_0, True, 8): 2.0})
    profile = run(settings.having(threads=0), model, machine)
    assert (profile.format, profile.threads) == ("Q8_0", 8)
    assert "8 threads instead of 4 save another 25%" in profile.why
    assert profile.step_costs[1] == pytest.approx(68 / 2)


def test_a_slow_machine_leaves_out_what_matters_less(
    settings: Settings, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it takes too long, chunks are not measured; the choice of weights is."""
    monkeypatch.setattr(search, "SLOW_SEARCH_S", 0.0)
    profile = run(settings, model, FakeMachine(speed={(Q8_0, True, 2): 1.33}))
    assert (profile.format, profile.chunk_tokens) == ("Q8_0", 0)


@pytest.mark.parametrize(
    ("usual", "usable", "candidates"),
    [(1, 1, [1]), (2, 2, [2]), (2, 4, [2, 4]), (4, 8, [4, 8, 3]), (16, 16, [16, 15, 8]), (2, 64, [2])],
)
def test_few_numbers_of_threads_are_candidates(
    monkeypatch: pytest.MonkeyPatch, usual: int, usable: int, candidates: list[int]
) -> None:
    """All logical CPUs where a core has two, one fewer, half of many; never more than a container may use."""
    monkeypatch.setattr(search, "choose_threads", lambda wanted: wanted or usual)
    monkeypatch.setattr(search, "usable_cpus", lambda: usable)
    assert search.thread_candidates(0) == candidates
    assert search.thread_candidates(5) == [5]


def test_made_files_of_other_machines_stay(settings: Settings, model: Path) -> None:
    """In a home folder shared by two machines, one does not delete what the other uses."""
    profile = run(settings, model, FakeMachine(speed={(Q8_0, True, 2): 1.33}))
    mine = keys.profile_path(settings, model)
    other = mine.with_name(mine.name.replace(profile.machine, "f" * 12))
    other.write_text(mine.read_text().replace(profile.machine, "f" * 12))
    run(settings, model, FakeMachine(speed={(Q8_0, True, 2): 0.5}))
    assert made(settings) == [".Q8_0"]


def test_profiles_of_an_older_library_go(settings: Settings, model: Path) -> None:
    """After an update of llama.cpp the old profile of this machine is replaced, not kept."""
    run(settings, model, FakeMachine())
    mine = keys.profile_path(settings, model)
    old = mine.with_name(f"{keys.file_prefix(model)}.{keys.machine_key()}.0.0.1.json")
    old.write_text(mine.read_text().replace(keys.library_version(), "0.0.1"))
    run(settings, model, FakeMachine())
    assert [file.name for file in store.tuned_dir(settings).glob("*.json")] == [mine.name]


def test_a_format_is_made_only_once(settings: Settings, model: Path) -> None:
    """A second tuning uses the file that the first one made."""
    run(settings, model, FakeMachine(speed={(Q8_0, True, 2): 1.33}))
    refusing = fail_for(SOURCE, Requantise)
    refusing.speed = {(Q8_0, True, 2): 1.33}
    assert run(settings, model, refusing).format == "Q8_0"


def test_the_guard_does_not_trust_names(
    settings: Settings, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lossy format that was declared neutral by mistake would still be refused by the sample."""
    lossy = Format("Q4_0", 2, 4.8, "neutral")
    monkeypatch.setattr(search, "requantisations", lambda _bits, **_: [lossy])
    profile = run(settings, model, FakeMachine(speed={("Q4_0", True, 2): 3.0}, change={"Q4_0": 0.1}))
    assert profile.made_file == ""

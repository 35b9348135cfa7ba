"""How many threads a machine gets."""

import os
from pathlib import Path

import pytest

from vivace.engine.tuning import cpu as plan


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Linux machine made of files."""
    monkeypatch.setattr(plan, "_TOPOLOGY", tmp_path / "cpu")
    monkeypatch.setattr(plan, "_CGROUP_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(plan.platform, "system", lambda: "Linux")  # type: ignore[attr-defined]
    return tmp_path


def cpus(machine: Path, monkeypatch: pytest.MonkeyPatch, rows: list[tuple[str, int]]) -> None:
    """One row a CPU: its siblings and its capacity."""
    for number, (siblings, capacity) in enumerate(rows):
        folder = machine / "cpu" / f"cpu{number}"
        (folder / "topology").mkdir(parents=True)
        (folder / "topology/thread_siblings_list").write_text(siblings)
        (folder / "cpu_capacity").write_text(str(capacity))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(len(rows))), raising=False)


def test_hyperthreads_share_a_thread(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two logical CPUs of one core get one thread."""
    cpus(machine, monkeypatch, [("0-1", 0), ("0-1", 0), ("2-3", 0), ("2-3", 0)])
    assert plan.choose_threads() == 2


def test_slow_cores_are_left_out(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step waits for its slowest thread, so efficiency cores get none."""
    cpus(machine, monkeypatch, [("0", 1024), ("1", 1024), ("2", 400), ("3", 400)])
    assert plan.choose_threads() == 2


def test_a_containers_quota_is_kept(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More threads than the container may run would wait for each other."""
    cpus(machine, monkeypatch, [(str(n), 0) for n in range(8)])
    (machine / "cpu.max").write_text("300000 100000\n")
    assert plan.choose_threads() == 3
    (machine / "cpu.max").write_text("max 100000\n")
    assert plan.choose_threads() == 8


def test_the_users_number_wins() -> None:
    """A setting overrides what the machine suggests."""
    assert plan.choose_threads(5) == 5


def test_this_machine_has_at_least_one() -> None:
    """Whatever this machine is, there is a thread and some memory."""
    assert plan.choose_threads() >= 1
    total, available = plan.memory_bytes()
    assert 0 < available <= total

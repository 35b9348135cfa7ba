"""Which machine runs the kernels: the GPU if there is one, otherwise the emulator on the CPU."""

import random
from pathlib import Path

import pytest

from tests.engine.fixtures import keep_torch_off_amx

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked by their folder's needs say why they are skipped."""
    keep_torch_off_amx()
    try:
        import torch
    except ImportError:
        reason = "torch is not installed: vivace extras add cuda"
        for item in items:
            if item.path.parent == HERE:
                item.add_marker(pytest.mark.skip(reason=reason))
        return
    if not torch.cuda.is_available():
        for item in items:
            if item.path.parent == HERE and item.path.name.startswith("test_device_"):
                item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU on this machine"))


@pytest.fixture(scope="module")
def module_seed() -> int:
    return random.randrange(1 << 30)


@pytest.fixture
def seed(module_seed: int) -> int:
    """One for a module's tests: those of a shape share its random weights, which take longer than a pass."""
    print(f"seed {module_seed}")
    return module_seed

"""Where Triton's kernels run in tests: on the GPU, or by its interpreter; without either, tests are skipped.

Imported before the modules that define kernels: they read then whether they are interpreted.
"""

import os

import pytest
import torch

HAS_GPU = torch.cuda.is_available()
if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"
_wanted = None if HAS_GPU else "3.9"  # its interpreter goes with today's numpy
pytest.importorskip("triton", minversion=_wanted, reason="Triton 3.9 or later is not installed")

"""Kill a process with SIGKILL at every line it executes in given modules, one child for each line.

Owns the forking and the counting. Does not own what must hold afterwards: the test checks that.
"""

import os
import signal
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any


def run_killed_at(step: int, action: Callable[[], object], modules: tuple[str, ...]) -> bool:
    """Run `action` in a child that dies before its `step`-th line in `modules`; True if it got to the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking a process that has threads
        pid = os.fork()
    if pid == 0:
        _act_and_die(step, action, modules)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0, "the action raised"
    return True


def _act_and_die(step: int, action: Callable[[], object], modules: tuple[str, ...]) -> None:
    left = step

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(modules):
            return None
        if event == "line":
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    try:
        sys.settrace(trace)
        action()
    except BaseException:  # noqa: BLE001 - the child must never return into pytest
        os._exit(1)
    os._exit(0)

"""Kill a process with SIGKILL at a given step, one child for each: a line of code, or a change of the disk.

Owns the forking and the counting. Does not own what must hold afterwards: the test checks that.
"""

import os
import signal
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate"}


def run_killed_at(step: int, action: Callable[[], object], modules: tuple[str, ...]) -> bool:
    """Run `action` in a child that dies before its `step`-th line in `modules`; True if it got to the end."""

    def arm(count: Callable[[], None]) -> None:
        def trace(frame: FrameType, event: str, _arg: Any) -> Any:
            if not frame.f_code.co_filename.endswith(modules):
                return None
            if event == "line":
                count()
            return trace

        sys.settrace(trace)

    return _run_armed(step, action, arm)


def run_killed_at_change(step: int, action: Callable[[], object]) -> bool:
    """Run `action` in a child that dies before it changes a folder for the `step`-th time.

    A change is a file opened for writing, renamed or removed, or a folder made: between two of them other
    processes see no difference, but for the bytes of a file that is being written.
    """

    def arm(count: Callable[[], None]) -> None:
        def hook(event: str, args: tuple[Any, ...]) -> None:
            is_writing = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
            if is_writing or event in _CHANGES:
                count()

        sys.addaudithook(hook)

    return _run_armed(step, action, arm)


def _run_armed(step: int, action: Callable[[], object], arm: Callable[[Callable[[], None]], None]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking a process that has threads
        pid = os.fork()
    if pid == 0:
        _act_and_die(step, action, arm)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0, "the action raised"
    return True


def _act_and_die(step: int, action: Callable[[], object], arm: Callable[[Callable[[], None]], None]) -> None:
    left = step

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        arm(count)
        action()
    except BaseException:  # noqa: BLE001 - the child must never return into pytest
        os._exit(1)
    os._exit(0)

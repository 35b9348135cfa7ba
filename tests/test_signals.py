"""Programs that tests start can be interrupted, however the check itself was started."""

import subprocess
import sys

from tests import REPOSITORY

INTERRUPTIBLE = "import signal; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"


def test_a_program_can_be_interrupted() -> None:
    """A child has the default for Ctrl-C."""
    subprocess.run([sys.executable, "-c", INTERRUPTIBLE], check=True)


def test_a_program_can_be_interrupted_under_a_check_that_cannot() -> None:
    """The same holds where the shell started the check with SIGINT ignored, as `./check &` does."""
    command = f"{sys.executable} -m pytest -q -p no:cacheprovider {__file__}::{_NAME}"
    done = subprocess.run(
        ["sh", "-c", f"trap '' INT; exec {command}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


_NAME = test_a_program_can_be_interrupted.__name__

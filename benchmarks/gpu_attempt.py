"""One piece of work on a borrowed GPU, among others: what came of it, or why nothing did.

Owns how a script goes on when one of its measurements fails. Does not measure anything.
"""

import sys
import time
import traceback
from collections.abc import Callable


def attempt(what: str, work: Callable[[], str], until: float) -> None:
    """Print what came of one piece of work, or why nothing did."""
    if time.monotonic() > until:
        return
    begun = time.monotonic()
    try:
        found = work()
    except Exception as error:  # noqa: BLE001 - one that fails must not cost the others their time
        traceback.print_exc(limit=-4)
        if "CUDA error" in str(error):  # nothing works in this process any more
            sys.exit(f"{what}: {str(error).splitlines()[0]}")
        found = f"FAILED {type(error).__name__}: {str(error)[:300]}"
    print(f"{what:44} {found}   [{time.monotonic() - begun:.1f} s]", flush=True)

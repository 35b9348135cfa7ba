"""Background tuning: the process that the server starts when it has been idle for a while.

    python -P -m vivace.engine.tuning.background '{"model": …}'

Runs at low priority and reports its progress on stdout (`engine.wire.tuning`), one JSON object a line. The
server kills its process group as soon as a turn begins; the next process continues from the journal.
Owns whether a file is worth measuring, and how a failure is recorded. Does not measure (`tune`).
"""

import contextlib
import os
import sys
from functools import partial
from pathlib import Path

import msgspec

from vivace.config import Settings, load_settings
from vivace.engine.tuning.children.child import Child
from vivace.engine.tuning.profile import Profile, read, skipped, write
from vivace.engine.tuning.search.host import Host
from vivace.engine.tuning.tune import AlreadyTuning, tune
from vivace.engine.wire.tuning import TuningReport
from vivace.errors import VivaceError
from vivace.models.store import model_path

NICENESS = 10
SMALLEST_BYTES = 500_000_000  # a smaller model is quick as it is
LARGEST_BYTES = 3_000_000_000  # a larger one takes minutes and many gigabytes of memory
BUSY_SHARE = 0.5  # of the CPUs used by others: figures would say more about them than about the model


def run(settings: Settings, host: Host) -> TuningReport:
    """Tune the model of the settings unless that was done. Return how it ended."""
    path = model_path(settings, settings.model)
    if not is_worth_tuning(path):
        return TuningReport("unsuited", text="only files of 0.5 to 3 GB are tuned by themselves")
    if decided := read(settings, path):
        return _done(decided)
    if host.busy_share() > BUSY_SHARE:
        return TuningReport("postponed", text="others use the processor")
    try:
        profile = tune(settings, settings.model, path, host, is_background=True)
        return _done(profile, is_new=True)
    except AlreadyTuning:
        return TuningReport("postponed", text="another process tunes this model")
    except VivaceError as error:
        with contextlib.suppress(OSError):  # where that cannot be remembered, the next server tries again
            write(settings, path, skipped(settings.model, path, error.message))
        return TuningReport("failed", text=error.message)


def is_worth_tuning(path: Path) -> bool:
    return path.is_file() and SMALLEST_BYTES <= path.stat().st_size <= LARGEST_BYTES


def _done(profile: Profile, *, is_new: bool = False) -> TuningReport:
    is_measured = profile.state == "measured"
    return TuningReport("done" if is_measured else "failed", text=profile.why, is_new=is_new)


def _say(report: TuningReport) -> None:
    print(msgspec.json.encode(report).decode(), flush=True)


def main() -> int:
    os.nice(NICENESS)
    settings = load_settings().having(**msgspec.json.decode(sys.argv[1], type=dict))
    host = Host(
        start_child=partial(Child, has_own_session=False),  # killed with us
        on_step=lambda number, total: _say(TuningReport("running", step=number, steps=total)),
    )
    with contextlib.suppress(BrokenPipeError):  # the server is gone
        _say(run(settings, host))
    return 0


if __name__ == "__main__":
    sys.exit(main())

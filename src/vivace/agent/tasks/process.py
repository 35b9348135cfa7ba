"""The process of a task: its own session, no terminal, one task, to its end.

    python -m vivace.agent.tasks.process FOLDER LOCK < settings.json

LOCK is the file descriptor that holds the task's lock, which the parent took: so no second process can begin
in between. The work is done in a fork, and the process that was started ends as soon as the lock's file names
that: a client that ends all that descends from it leaves the task alone. Owns the fork and the lock. Does
not own what runs in it (`running`).
"""

import os
import sys

from vivace.agent.tasks.lock import write_holder
from vivace.child_python import detach


def main() -> int:
    lock = int(sys.argv[2])
    os.set_inheritable(lock, False)
    let_starter_go = detach()
    write_holder(lock)
    let_starter_go(0)
    from vivace.agent.tasks.running import run  # after the fork: nobody waits for half a second of imports

    try:
        return run(sys.argv[1], sys.stdin.buffer.read())
    finally:
        os.close(lock)  # others need not wait for the interpreter to end


if __name__ == "__main__":
    sys.exit(main())

"""The one thread that writes: jobs that wait together are committed together, and chores are done in between.

Owns the order of writing, transactions, and when the write-ahead log is emptied into the file. Does not know
what the jobs do. A job's answer is given after its commit, never before.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from vivace.server.store import removal
from vivace.server.store.database import BUSY_S, Database, roll_back
from vivace.server.store.problems import StoreUnavailable

MOST_AT_ONCE = 64  # jobs in one commit
WAL_BYTES = 4 << 20  # emptied at this size when nobody waits
MOST_WAL_BYTES = 4 * WAL_BYTES  # and at this size even so
QUIET_S = 5.0  # and at any size when nothing was written for so long
CHECKPOINT_WAIT_S = 0.5

log = logging.getLogger(__name__)
T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
Job = tuple[Work[Any], Future[Any]]


class Writer:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection = database.writer
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._closing = threading.Lock()
        self._is_closed = False
        self._is_ailing = False  # the last chore failed: said once, not after each job
        self._checkpoint_at_bytes = WAL_BYTES
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Work[T]) -> Future[T]:
        """Run `work` in a transaction after all earlier jobs. It may be rolled back and run again."""
        future: Future[T] = Future()
        with self._closing:
            if self._is_closed:
                raise StoreUnavailable("The store is closed.", "The server is shutting down.")
            self._queue.put((work, future))
        return future

    def close(self) -> None:
        """Finish the submitted jobs. Chores are left to the next start."""
        with self._closing:
            if not self._is_closed:
                self._is_closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        has_chores = True  # left by the last process
        is_open = True
        while is_open:
            wait_s = 0.0 if has_chores else QUIET_S if self._database.wal_bytes else None
            has_written, is_open = self._write(wait_s)
            if is_open:
                has_chores = self._chores(is_quiet=not has_written and not has_chores)

    def _write(self, wait_s: float | None) -> tuple[bool, bool]:
        """Return whether there was a job, and whether more may come."""
        jobs, is_open = self._next_jobs(wait_s)
        if jobs:
            self._commit(jobs)
        return bool(jobs), is_open

    def _next_jobs(self, wait_s: float | None) -> tuple[list[Job], bool]:
        """Return the waiting jobs, and whether more may come. `wait_s` None: wait for one."""
        jobs: list[Job] = []
        try:
            while len(jobs) < MOST_AT_ONCE:
                job = self._queue.get(timeout=0.0 if jobs else wait_s)
                if job is None:
                    return jobs, False
                if job[1].set_running_or_notify_cancel():
                    jobs.append(job)
        except Empty:
            pass
        return jobs, True

    def _commit(self, jobs: list[Job]) -> None:
        """Commit all jobs in one transaction. If one fails, give each its own, so that it fails alone."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:  # somebody else writes for too long: no job would fare better
            return self._fail(jobs, error)
        try:
            results = [work(self._connection) for work, _ in jobs]
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - the boundary of this thread: each job is answered
            roll_back(self._connection)
            if len(jobs) == 1:
                return self._fail(jobs, error)
            for job in jobs:
                self._commit([job])
            return None
        for (_, future), result in zip(jobs, results, strict=True):
            future.set_result(result)
        return None

    def _fail(self, jobs: list[Job], error: Exception) -> None:
        for _, future in jobs:
            problem = self._database.explain(error) if isinstance(error, sqlite3.Error) else error
            future.set_exception(problem)

    def _chores(self, *, is_quiet: bool) -> bool:
        """Do one small step of maintenance. Return whether there is more to do."""
        try:
            has_more = self._tidy()
            if is_quiet or self._is_log_long():
                self._empty_log()
            self._is_ailing = False
        except sqlite3.Error as error:
            roll_back(self._connection)
            if not self._is_ailing:
                log.warning("the store cannot be tidied now: %s", self._database.explain(error).message)
            self._is_ailing = True
            return False
        return has_more

    def _tidy(self) -> bool:
        connection = self._connection
        if removal.has_unneeded(connection):
            connection.execute("BEGIN IMMEDIATE")
            removal.collect(connection)
            connection.execute("COMMIT")
        elif removal.has_spare_room(connection):
            removal.give_back(connection)
        else:
            return False
        return True

    def _is_log_long(self) -> bool:
        size = self._database.wal_bytes
        return size >= self._checkpoint_at_bytes and (size >= MOST_WAL_BYTES or self._queue.empty())

    def _empty_log(self) -> None:
        """Move the write-ahead log into the file. It waits for the disk, so answers are sent before it.

        Afterwards the disk has it all, and what was deleted is gone from it.

        TRUNCATE holds off every other process's writes meanwhile. It must: SQLite up to 3.51.2 can lose a
        commit that another connection makes at the same instant as a checkpoint.
        """
        self._connection.execute(f"PRAGMA busy_timeout = {int(CHECKPOINT_WAIT_S * 1000)}")
        try:
            is_busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")
        # A stranger who reads for long keeps the log from being emptied: do not wait for him after each job.
        self._checkpoint_at_bytes = self._database.wal_bytes + WAL_BYTES if is_busy else WAL_BYTES

"""Compile grammars in a thread beside the engine's loop: only the turn that needs one waits.

Owns the thread. Does not own what a grammar may be (`grammar`).
"""

import concurrent.futures
from concurrent.futures import Future, ThreadPoolExecutor

from vivace.engine.output.grammar import Constraint, Grammars
from vivace.engine.wire.frames import Grammar
from vivace.errors import StartError

WAIT_S = 0.005  # between two polls for frames while all turns wait for a grammar


class Compiler:
    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars
        self._thread: ThreadPoolExecutor | None = None  # from the first grammar on
        self._compiling: list[Future[Constraint]] = []

    def compile(self, grammar: Grammar) -> Future[Constraint]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        future = self._thread.submit(self._compile, grammar)
        self._compiling = [each for each in self._compiling if not each.done()] + [future]
        return future

    def _compile(self, grammar: Grammar) -> Constraint:
        try:
            return self._grammars.compile(grammar)
        except OSError as error:  # no more processes, or no memory for one
            raise StartError(f"Grammars cannot be checked now: {error}.", "Try again.") from error

    def prepare(self) -> bool:
        """Do a little of what the first grammar would wait for. Return whether more is left."""
        return self._grammars.prepare()

    def wait(self) -> None:
        """Wait until a grammar is compiled, or for a few milliseconds."""
        concurrent.futures.wait(self._compiling, WAIT_S, concurrent.futures.FIRST_COMPLETED)

    def close(self) -> None:
        if self._thread:
            self._thread.shutdown(cancel_futures=True)
        self._grammars.close()

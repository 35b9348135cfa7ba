"""Try a grammar in a process of its own before the engine compiles it: a crash ends only that process.

llguidance bounds most of its work, but a long chain of references overflows its stack, and an intersection of
thirty patterns keeps it busy for hours. Owns that process: its limits, what it runs, and how it is asked.
Does not own vocabularies or masks (see `grammar`): here a token is a byte, which takes no time to prepare.
"""

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vivace.child_python import module_command
from vivace.engine.wire.frames import Grammar
from vivace.errors import StartError, UsageError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MAX_BYTES = 128 * 1024  # of a grammar's text
CHECK_S = 0.3  # of CPU time; an honest schema takes 1 ms, one with 1,000 alternatives 100
WAIT_S = 10 * CHECK_S  # for the answer, on a machine that has other work too
START_S = 20.0  # for the process to come up; 0.2 s on an idle machine
MEMORY_BYTES = 200 * 1024 * 1024  # that one grammar may need
STACK_BYTES = 1024 * 1024  # a thread of the engine has 2 MB or more: what passes here has room there
COMMAND = module_command("vivace.engine.output.grammar_check")

# The slowest step found (a constant of 100 KB) takes 0.15 s; llguidance's own limits allow several. A string
# with a maxLength has five states a character, 0.6 KB each: 200,000 are enough for 37,000 characters.
LIMITS = {
    "initial_lexer_fuel": 200_000,
    "step_lexer_fuel": 100_000,
    "step_max_items": 10_000,
    "max_lexer_states": 200_000,
    "max_grammar_size": 100_000,
}
# White space in JSON: none, one space, or a line break with its indentation. Small models that may write any
# amount of it sometimes write nothing else. `oneOf` is read as `anyOf`. "x-guidance" in a schema goes first.
JSON_OPTIONS = {"whitespace_pattern": r" |\n[ \t]{0,32}", "coerce_one_of": True}
TOO_LONG = "it takes too long to compile"
TOO_DEEP = "it is too large or too deeply nested to compile"
NAMES = {"json_schema": "JSON schema", "regex": "regular expression", "lark": "grammar"}


def compile_grammar(tokenizer: "LLTokenizer", grammar: Grammar) -> "LLMatcher":
    """Return llguidance's matcher for a grammar. Raise UsageError with a message of one line."""
    from llguidance import LLMatcher, LLParserLimits  # 0.1 s: only who has a grammar pays for it

    try:
        source = _source(grammar)
    except ValueError as error:
        raise refusal(grammar, str(error)) from error
    limits = LLParserLimits(**LIMITS, verbose_errors=False)  # type: ignore[arg-type]
    matcher = LLMatcher(tokenizer, source, log_level=0, limits=limits)
    if matcher.is_error():
        raise refusal(grammar, matcher.get_error())
    return matcher


def _source(grammar: Grammar) -> str:
    from llguidance import LLMatcher

    match grammar.kind:
        case "json_schema":
            text = "{}" if grammar.text.strip() == "true" else grammar.text
            return LLMatcher.grammar_from_json_schema(text, defaults=JSON_OPTIONS)  # type: ignore[arg-type]
        case "regex":
            return LLMatcher.grammar_from_regex(grammar.text)
        case "lark":  # as JSON: text that begins with a brace would be taken for something else
            return msgspec.json.encode({"grammars": [{"lark_grammar": grammar.text}]}).decode()


def refusal(grammar: Grammar, trouble: str) -> UsageError:
    """Return llguidance's message as an error of one line."""
    lines = [line.strip() for line in trouble.replace("<non-verbose/>", "").splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    reason = (errors or lines or ["unknown"])[0].partition("; following")[0]
    if reason.startswith("NoExtension"):
        reason = "nothing matches it"
    reason = reason if len(reason) <= 200 else reason[:199] + "…"
    return UsageError(f"The {NAMES[grammar.kind]} cannot be used: {reason}")


class Checker:
    """Asks the process, starting it when there is none."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = False  # whether the process has come up
        self._end: weakref.finalize[..., Checker] | None = None

    def check(self, grammar: Grammar) -> None:
        """Raise UsageError if the grammar is wrong, or could harm the process that compiles it."""
        try:
            size = len(grammar.text.encode())
        except UnicodeEncodeError:
            raise refusal(grammar, "it is not valid Unicode") from None
        if size > MAX_BYTES:
            raise refusal(grammar, f"it has {size:,} bytes, and {MAX_BYTES:,} are allowed")
        if trouble := self._ask(grammar):
            raise UsageError(trouble)

    def close(self) -> None:
        self._process = None
        if self._end:
            self._end()

    def _ask(self, grammar: Grammar) -> str:
        process = self._process or self._start()
        if not self._is_ready:
            self._await(process)
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode(grammar) + b"\n")
            process.stdin.flush()
            return _answer(process, WAIT_S)
        except TimeoutError:
            self._replace()
            raise refusal(grammar, TOO_LONG) from None
        except (EOFError, BrokenPipeError):
            is_slow = process.wait() == -signal.SIGPROF
            self._replace()
            raise refusal(grammar, TOO_LONG if is_slow else TOO_DEEP) from None
        except BaseException:
            self.close()  # an answer that may still come must not be taken for the next one's
            raise

    def _replace(self) -> None:
        """End the process and start another now: the next grammar need not wait for it to come up."""
        self.close()
        self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is ours, and we end it
        )
        self._process, self._end, self._is_ready = process, weakref.finalize(self, _end, process), False
        return process

    def _await(self, process: "subprocess.Popen[bytes]") -> None:
        try:
            _answer(process, START_S)
        except (EOFError, TimeoutError):
            self.close()
            raise StartError(
                "The process that checks grammars did not start.", "Is llguidance installed?"
            ) from None
        self._is_ready = True


def _answer(process: "subprocess.Popen[bytes]", limit_s: float) -> str:
    assert process.stdout is not None
    descriptor, data = process.stdout.fileno(), b""
    while not data.endswith(b"\n"):
        if not select.select([descriptor], [], [], limit_s)[0]:
            raise TimeoutError
        chunk = os.read(descriptor, 65536)
        if not chunk:
            raise EOFError
        data += chunk
    return msgspec.json.decode(data, type=str)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(BrokenPipeError):  # what was not yet sent has no reader any more
            if pipe:
                pipe.close()


# ---- what runs in the process ---------------------------------------------------------------------


def main() -> None:
    """Read one grammar a line and write its error, or an empty string, until the engine is gone."""
    from llguidance import LLTokenizer

    tokenizer = LLTokenizer("byte")
    _limit_resources()
    _say("")
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, CHECK_S)  # SIGPROF ends us, whether the engine waits or is gone
        _say(_trouble(tokenizer, msgspec.json.decode(line, type=Grammar)))
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def _say(text: str) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(text) + b"\n")
    sys.stdout.buffer.flush()


def _trouble(tokenizer: "LLTokenizer", grammar: Grammar) -> str:
    try:
        matcher = compile_grammar(tokenizer, grammar)
        _walk(matcher)
        return refusal(grammar, matcher.get_error()).message if matcher.is_error() else ""
    except UsageError as error:
        return error.message


def _walk(matcher: "LLMatcher") -> None:
    """Take the first steps of an output, where most faulty grammars fail."""
    for _ in range(3):
        forced = matcher.compute_ff_tokens()
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        if matcher.is_stopped():
            break
        matcher.consume_token(forced[0] if forced else (mask & -mask).bit_length() - 1)


def _limit_resources() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, resource.getrlimit(resource.RLIMIT_STACK)[1]))
    with contextlib.suppress(OSError):  # elsewhere than on Linux, only time and size are limited
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main()

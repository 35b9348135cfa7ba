"""What the examples of an instruction give with a piece of code, where it is not what they say.

Owns the program that tries them, which runs in the sandbox only. Does not find examples (`check.examples`).
"""

import json
from collections.abc import Sequence

from vivace.agent.edits.check.examples import CLOSE, SECONDS, Example
from vivace.agent.edits.repair.told import MAX_VALUE_CHARS, FailedExample
from vivace.agent.sandbox.run import Limits, run_sandboxed
from vivace.child_python import python_command
from vivace.errors import SandboxUnavailable

LIMITS = Limits(seconds=40.0, cpu_seconds=30.0)
NO_END = f"no result within {SECONDS} s"


async def failed_examples(code: str, examples: Sequence[Example]) -> list[FailedExample] | None:
    """Return the examples that do not hold for the code, or None if they cannot be run here."""
    program = _program_for(code, examples).encode()
    try:
        outcome = await run_sandboxed(
            python_command("-I", "program.py"), files={"program.py": program}, limits=LIMITS
        )
        results = json.loads(outcome.output.splitlines()[-1])
    except (SandboxUnavailable, ValueError, IndexError):
        return None
    if not isinstance(results, list) or len(results) != len(examples):
        return None
    return [
        FailedExample(example.call, example.expected, str(gave))
        for example, gave in zip(examples, results, strict=True)
        if gave is not None
    ]


def _program_for(code: str, examples: Sequence[Example]) -> str:
    """Return a program that prints, for each example, null if it holds and else what came: a list in JSON."""
    given = json.dumps({"code": code, "examples": [[each.call, each.expected] for each in examples]})
    program = _PROGRAM.replace("CLOSE", CLOSE)
    for name, value in (("NO_END", NO_END), ("SECONDS", SECONDS), ("CHARS", MAX_VALUE_CHARS)):
        program = program.replace(name, repr(value))
    return program.replace("GIVEN", repr(given))  # last: it has the user's own text


# Each example runs in a process of its own, so that one that does not end costs only itself.
_PROGRAM = """
import json, math, os, signal

given = json.loads(GIVEN)

CLOSE

def tried(call, expected):
    names = {"__name__": "candidate"}
    try:
        exec(compile(given["code"], "candidate", "exec"), names)
        gave = eval(call, dict(names))
        return "" if close(gave, eval(expected, {})) else "=" + repr(gave)[: CHARS + 1]
    except Exception as error:
        return "=" + (type(error).__name__ + ": " + str(error))[: CHARS + 1]


def run(call, expected):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            signal.alarm(SECONDS)
            os.write(writer, b"." + tried(call, expected).encode("utf-8", "replace"))
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    said = os.read(reader, 1 << 16).decode("utf-8", "replace")
    os.close(reader)
    return None if said == "." else said[2:] or NO_END


print(json.dumps([run(call, expected) for call, expected in given["examples"]]))
"""

"""Hostile inputs for regular expressions, made of their own letters, and how long a search in them takes.

Owns the program that one test runs as a process of its own. `python -m tests.fuzz.pumping SEED COUNT` tries
that many inputs for each expression, and prints a line before each and one for each that is slow. Knows every
compiled expression that a module of ours has under a name, and how that module uses it.
"""

import importlib
import inspect
import pkgutil
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import vivace

sre_parse: Any = importlib.import_module("re._parser")

SIZE = 24_000  # characters: quadratic work takes a second, linear work a millisecond
SLOW_S, MUCH_S = 0.06, 0.3
MOST_TIMES = 3.0  # as long as a search of half of the text: quadratic work takes four times as long
END_S = 1.0  # a search that takes longer is ended: the engine of `re` hears signals
SKIPPED = ("vivace.engine.runners", "vivace.cluster", "vivace.training", "vivace.bench", "vivace.eval")
BOUNDED = {  # expressions that are only shown a short text
    "vivace.redaction._OPEN": "the last 4,096 characters",
    "vivace.server.conversation.infill_text.LAST_WORD": "the last 32 characters",
}
Pattern = re.Pattern[Any]


def patterns() -> Iterator[tuple[str, Pattern]]:
    """Yield every expression that a module has under a name, each once."""
    seen: set[int] = set()
    for found in pkgutil.walk_packages(vivace.__path__, "vivace."):
        if found.name.startswith(SKIPPED) or found.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(found.name)
        except ImportError:
            continue  # an extra that is not installed
        for name, value in vars(module).items():
            for each in value if isinstance(value, tuple) else (value,):
                for one in each if isinstance(each, tuple) else (each,):
                    if isinstance(one, re.Pattern) and id(one) not in seen:
                        seen.add(id(one))
                        yield f"{found.name}.{name}", one


def method_of(name: str, pattern: Pattern) -> Callable[[Any], object]:
    """Return how our code uses the expression: at one place of a text only, or at every place."""
    module, _, variable = name.rpartition(".")
    source = inspect.getsource(sys.modules[module])
    used = set(re.findall(rf"\b{variable}\.(\w+)\(", source)) & {"match", "fullmatch"}
    other = re.search(rf"\b{variable}\.(?:search|sub|subn|split|find\w+)\b", source)
    if used and not other:
        return getattr(pattern, used.pop())  # type: ignore[no-any-return]
    return lambda text: sum(1 for _ in pattern.finditer(text))


def letters_of(pattern: Pattern) -> list[str]:
    """Return pieces of text that the expression speaks of: its literals, words of them, and the usual."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    found = {"a", " ", "\n", "A", "_", "-", ".", "1", "x", "\t", "/", '"', "'", "=", ":", "`", "\\"}
    runs: list[str] = []

    def look(parts: Any) -> None:
        run = ""
        for kind, value in parts:
            if str(kind) == "LITERAL":
                run += chr(value)
                found.add(chr(value))
                continue
            runs.append(run)
            run = ""
            for inner in _inner(value):
                look(inner)
        runs.append(run)

    look(
        sre_parse.parse(
            text, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
        )
    )
    return sorted(found | {run for run in runs if 1 < len(run) < 30})


def _inner(value: Any) -> Iterator[Any]:
    if isinstance(value, sre_parse.SubPattern):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _inner(each)


def inputs(pattern: Pattern, randomness: random.Random, count: int) -> Iterator[str]:
    """Yield texts that repeat something short, with another beginning and another end."""
    letters = letters_of(pattern)
    for _ in range(count):
        lead, pump, end = ("".join(randomness.choices(letters, k=randomness.randint(0, 3))) for _ in range(3))
        pump = pump or randomness.choice(letters)
        repeated = pump * (SIZE // len(pump))
        yield randomness.choice([lead + repeated + end, repeated, (lead + pump * 40 + end) * (SIZE // 200)])[
            :SIZE
        ]


def seconds(pattern: Pattern, use: Callable[[Any], object], text: str) -> float:
    """Return the CPU time of a search of the whole text, the best of three where it is slow."""
    data = text.encode("utf-8", "replace") if isinstance(pattern.pattern, bytes) else text
    best = END_S
    for _ in range(3):
        signal.setitimer(signal.ITIMER_PROF, END_S)
        began = time.process_time()
        try:
            use(data)
        except TimeoutError:
            return END_S
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        best = min(best, time.process_time() - began)
        if best < SLOW_S:
            break
    return best


def is_slow(pattern: Pattern, use: Callable[[Any], object], text: str, took_s: float) -> bool:
    """Return whether a search takes long: on a slow machine linear work takes a little long, too."""
    if took_s <= SLOW_S:
        return False
    return took_s > MUCH_S or took_s > MOST_TIMES * seconds(pattern, use, text[: len(text) // 2])


def _end(*_: object) -> None:
    raise TimeoutError


def main(seed: int, count: int) -> None:
    signal.signal(signal.SIGPROF, _end)
    randomness = random.Random(seed)
    for name, pattern in patterns():
        if name in BOUNDED:
            continue
        print("looks", name, flush=True)
        use = method_of(name, pattern)
        for text in inputs(pattern, randomness, count):
            if is_slow(pattern, use, text, took := seconds(pattern, use, text)):
                print("slow", name, f"{took:.2f}", ascii(text[:60]), ascii(text[-20:]), flush=True)
                break


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

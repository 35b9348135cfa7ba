"""Runs inside the sandbox, as a program: calls each version of a file, and prints what came of it.

It reads given.json beside it: the old text, the candidates' texts, examples (expressions), and names of
functions, which are called with made-up arguments that fit the old text. It prints JSON: for every candidate
the results of the examples, and on how many made-up calls it did other than the old text. Standard library
only: nothing of Vivace is there. Owns how code is called. Does not judge (`choose`).
"""

import ast
import io
import json
import os
import random
import re
import select
import signal
import sys
import time
from itertools import cycle, islice, product
from operator import ne
from pathlib import Path
from typing import Any, NamedTuple

CALLS = 60  # made-up ones, for each function
EXAMPLE_S, CALL_S = 2.0, 0.1  # for one
VERSION_S = 4.0  # for all calls of one version
LONGEST = 20_000  # characters of a result that are compared
SHOWN = 2_000  # characters of an example's result that are printed
PROBED_VERSIONS, PROBED_KINDS, PROBES = 5, 150, 3


class Result(NamedTuple):
    """What a call gave."""

    text: str  # the value as Python writes it, or the error
    printed: str = ""
    is_value: bool = False

    @property
    def in_short(self) -> tuple[str, str, bool]:
        """Return what two versions are compared by: of an error only its kind."""
        return self.text if self.is_value else self.text.partition(":")[0], self.printed, self.is_value


NOT_RUN = Result("no result")

INTEGERS = [0, 1, 2, 3, 5, -1, 4, 7, 10, -3, 12, 15, 100, 6, 9, 13]
FLOATS = [0.0, 1.5, 2.0, -1.25, 3.7, 0.1, 10.0]
RANGES = [(1, 12), (-20, 20), (0, 200)]
STRINGS = [
    "",
    "a",
    "abc",
    "Hello World",
    "racecar",
    "aAbB",
    "12 3",
    "()(())",
    "one two three",
    "xyzzy",
    "Zz9!",
]
KINDS = (
    *("int", "str", "list[int]", "list[str]", "float", "list[list[int]]", "dict", "list[float]"),
    *("tuple[int]", "bool", "list[tuple[int]]"),
)
# What a parameter without an annotation mostly is, by its name. Others are tried after these.
USUAL = (
    (
        "int",
        r"[ijkmnxyabcdpq]|num(ber)?|count|size|index|limit|width|height|length|year|day|month|step|target",
    ),
    (
        "str",
        r"s|t|c|ch|char\w*|str\w*|\w*_str|\w*string|text|word|name|line|sentence|message|sep|prefix|suffix|key",
    ),
    (
        "list[int]",
        r"a|l|x|xs|arr\w*|lst\w*|li|\w*list|nums|numbers|values|items|elements|data|array|sequence",
    ),
    ("list[str]", r"words|strings|names|lines|strs|keys"),
    ("float", r"x|y|r|radius|price|rate|area|weight|temp\w*|amount"),
    ("list[list[int]]", r"grid|matrix|mat|board|rows|lists|table"),
    ("dict", r"d|dict\w*|\w*dict|map\w*|counts"),
    ("list[tuple[int]]", r"tup\w*|tuples|pairs|points|intervals|\w*tuples?"),
    ("tuple[int]", r"t|tup\w*|pair|point|interval\d?|\w*tuple|\w*tup"),
)
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")


def main() -> None:
    given = json.loads(Path("given.json").read_text("utf-8"))
    ends_s = time.monotonic() + given["seconds"]
    old, codes = given["old"], given["codes"]
    came = [results(code, given["examples"], EXAMPLE_S, ends_s) for code in codes]
    names = given["names"] if _parses(old) else []
    calls = [call for name in names for call in made_up_calls(name, old, codes, ends_s)]
    differing, tried = compare(old, codes, calls, ends_s)
    trials = [
        {"came": [result.text[:SHOWN] for result in results], "differing": count}
        for results, count in zip(came, differing, strict=True)
    ]
    print(json.dumps({"calls": tried, "trials": trials}))


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def compare(old: str, codes: list[str], calls: list[str], ends_s: float) -> tuple[list[int], int]:
    """Return on how many calls each version does other than the old one, and the number of calls.

    A call that the old version itself answers in two ways says nothing, and is left out.
    """
    before, again = (results(old, calls, CALL_S, ends_s) for _ in range(2))
    steady = [
        n for n, call in enumerate(calls) if before[n].in_short == again[n].in_short != NOT_RUN.in_short
    ]
    after = [results(code, [calls[n] for n in steady], CALL_S, ends_s) for code in codes]
    expected = [before[n].in_short for n in steady]
    return [sum(map(ne, expected, (one.in_short for one in each))) for each in after], len(steady)


class OutOfTime(BaseException):
    """Raised in the candidate, which should not catch it."""


def results(code: str, expressions: list[str], seconds: float, ends_s: float) -> list[Result]:
    """Return what each expression gives in this version, which runs in a process of its own."""
    ends_s = min(ends_s, time.monotonic() + VERSION_S)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reader)
            _answer(code, expressions, seconds, writer)
        finally:
            os._exit(0)
    os.close(writer)
    lines = _read_until(reader, ends_s).split(b"\n")[:-1]
    os.close(reader)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = [_read(line) for line in lines[: len(expressions)]]
    return found + [NOT_RUN] * (len(expressions) - len(found))


def _read(line: bytes) -> Result:
    """Return the result on a line. Code that finds our pipe may write anything into it."""
    try:
        text, printed, is_value = json.loads(line)
    except (ValueError, TypeError):
        return NOT_RUN
    return Result(str(text), str(printed), bool(is_value))


def _read_until(reader: int, ends_s: float) -> bytes:
    data = b""
    while (left_s := ends_s - time.monotonic()) > 0 and select.select([reader], [], [], left_s)[0]:
        more = os.read(reader, 1 << 16)
        if not more:
            break
        data += more
    return data


def _answer(code: str, expressions: list[str], seconds: float, writer: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    signal.signal(signal.SIGALRM, _raise_out_of_time)
    names: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(code, "candidate", "exec"), names)
    for expression in expressions:
        os.write(writer, json.dumps(_result(expression, names, seconds)).encode() + b"\n")


def _raise_out_of_time(*_: object) -> None:
    raise OutOfTime


def _result(expression: str, names: dict[str, Any], seconds: float) -> Result:
    printed = sys.stdout = io.StringIO()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        value = eval(expression, dict(names))
        text, is_value = repr([*islice(value, 100)] if hasattr(value, "__next__") else value), True
    except OutOfTime:
        text, is_value = f"no result within {seconds:g} s", False
    except BaseException as error:  # noqa: BLE001 (code that nobody has read may raise anything)
        text, is_value = f"{type(error).__name__}: {error}", False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return Result(_ADDRESS.sub("0x", text)[:LONGEST], printed.getvalue()[:LONGEST], is_value)


def made_up_calls(name: str, old: str, codes: list[str], ends_s: float) -> list[str]:
    """Return calls of a function with arguments of the kinds that it takes; none if it cannot be called."""
    function = next(
        (node for node in ast.parse(old).body if isinstance(node, ast.FunctionDef) and node.name == name),
        None,
    )
    if function is None or function.args.kwonlyargs or not function.args.args:
        return []
    maker = Maker(old)
    kinds = [likely_kinds(each.arg, each.annotation) for each in function.args.args]
    choices = list(map(tuple, islice(_likeliest_first(kinds), PROBED_KINDS)))
    if len(choices) > 1:
        choices = _fitting(name, maker, choices, [old, *codes[:PROBED_VERSIONS]], ends_s)
    calls = (maker.call(name, kinds) for kinds in cycle(choices))
    return list(islice(dict.fromkeys(islice(calls, 10 * CALLS)), CALLS))


def _likeliest_first(kinds: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the choices of a kind for each parameter, those first that are usual for most of them."""
    ranked = product(*(enumerate(each) for each in kinds))
    every = sorted(islice(ranked, 100_000), key=lambda choice: sum(rank for rank, _ in choice))
    return [tuple(kind for _, kind in choice) for choice in every]


def _fitting(
    name: str, maker: "Maker", choices: list[tuple[str, ...]], versions: list[str], ends_s: float
) -> list[tuple[str, ...]]:
    """Return the kinds of arguments with which the versions give the most values: at most three."""
    calls = [maker.call(name, kinds) for kinds in choices for _ in range(PROBES)]
    values: list[list[str]] = [[] for _ in choices]
    for code in versions:
        for place, result in enumerate(results(code, calls, CALL_S, ends_s)):
            if result.is_value:
                values[place // PROBES].append(result.text)
    fits = [len(texts) + len(set(texts)) / 2 for texts in values]
    ranked = sorted(range(len(choices)), key=lambda n: -fits[n])
    return [choices[n] for n in ranked[:3] if fits[n] and fits[n] >= 0.8 * fits[ranked[0]]] or choices[:1]


class Maker:
    """Makes arguments, the same ones in every run: common values, the code's own constants, and others."""

    def __init__(self, code: str) -> None:
        self._random = random.Random(0)
        self._is_small = False  # the values of this call, so that some of them are equal
        constants = [node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)]
        numbers = [each for each in constants if type(each) is int and abs(each) < 10**6]
        strings = [each for each in constants if isinstance(each, str) and 0 < len(each) < 40]
        self._integers = [*INTEGERS, *(each + step for each in numbers for step in (0, 1, -1))]
        self._strings = [*STRINGS, *(form for each in strings for form in (each, each * 2, f"a{each}b"))]
        self._letters = "abcdeABC 123()" + "".join(strings)[:40]

    def call(self, name: str, kinds: tuple[str, ...]) -> str:
        """Return an expression that gives the function's result and what became of its arguments."""
        given: list[Any] = []
        self._is_small = self._chance(0.3)
        for kind in kinds:
            given.append(self._related(kind, given) if given and self._chance(0.4) else self.value(kind))
        return f"(lambda *given: ({name}(*given), given))({', '.join(map(repr, given))})"

    def value(self, kind: str) -> Any:
        pick = self._random.choice
        match kind.partition("["):
            case ("int", _, _) if self._is_small:
                return self._random.randint(0, 3)
            case ("int", _, _):
                return pick(self._integers) if self._chance(0.7) else self._random.randint(*pick(RANGES))
            case ("float", _, _):
                return pick(FLOATS) if self._chance(0.6) else round(self._random.uniform(-10, 10), 2)
            case ("bool", _, _):
                return self._chance(0.5)
            case ("dict", _, _):
                values = self._strings if self._chance(0.5) else self._integers
                return {pick(STRINGS): pick(values) for _ in range(self._random.randint(0, 3))}
            case ("list", _, inner):
                pool = [self.value(inner[:-1]) for _ in range(8)]
                pool = pool[:3] if self._chance(0.4) else pool  # so that values come twice
                return [pick(pool) for _ in range(pick([0, 1, 2, 3, 4, 5, 6, 8]))]
            case ("tuple", _, inner):
                return tuple(self.value(inner[:-1]) for _ in range(2))
        if self._is_small:
            return pick(["", "a", "ab"])
        if self._chance(0.6):
            return pick(self._strings)
        return "".join(pick(self._letters) for _ in range(self._random.randint(1, 9)))

    def _related(self, kind: str, before: list[Any]) -> Any:
        """Return an argument that has to do with one before: its length, a part of it, an item of it."""
        pick = self._random.choice
        other = pick(before)
        if isinstance(other, str | list | tuple) and kind == "int":
            return pick([len(other), len(other) - 1, *(each for each in other if type(each) is int)])
        if isinstance(other, str) and kind == "str" and other:
            begin = self._random.randrange(len(other))
            return other[begin : begin + pick([1, 1, 2, 3])]
        if isinstance(other, list) and kind.startswith("list"):
            return [each for each in other if self._chance(0.7)]
        items = [each for each in other if isinstance(each, str)] if isinstance(other, list | dict) else []
        return pick(items) if items and kind == "str" else self.value(kind)

    def _chance(self, share: float) -> bool:
        return self._random.random() < share


def likely_kinds(name: str, annotation: ast.expr | None) -> tuple[str, ...]:
    """Return the kinds that a parameter may be of, the likeliest first."""
    if kind := annotated_kind(annotation):
        return (kind,)
    usual = [kind for kind, names in USUAL if re.fullmatch(names, name.lower().rstrip("0123456789"))]
    return tuple(dict.fromkeys([*usual, *KINDS]))


def annotated_kind(annotation: ast.expr | None) -> str:
    """Return the kind that an annotation names, or nothing if it names none that can be made."""
    if annotation is None:
        return ""
    name = ast.unparse(annotation).lower().replace("typing.", "").replace(" ", "")
    name = name.removesuffix("|none")
    if name.startswith("optional["):
        name = name[len("optional[") : -1]
    outer, _, inner = name.partition("[")
    match outer:
        case "int" | "float" | "str" | "bool" | "dict":
            return outer
        case "list" | "sequence" | "iterable":
            return f"list[{inner[:-1]}]" if f"list[{inner}" in KINDS else "list[int]"
        case "tuple":
            first = inner.partition(",")[0].rstrip("]")
            return f"tuple[{first}]" if first in ("int", "float", "str") else "tuple[int]"
    return ""


if __name__ == "__main__":
    main()

"""What a Python function takes, and what is wrong with a call of it.

Owns the comparison. Says nothing about a call with `*` or `**`, whose arguments are not known.
"""

import ast
from dataclasses import dataclass

_IN_WORDS = ("no arguments", "1 argument")


@dataclass(frozen=True)
class Signature:
    in_order: tuple[str, ...]  # that may be given without their names, those of `positional_only` first
    positional_only: int
    by_name: frozenset[str]  # keyword-only
    required: frozenset[str]
    takes_more: bool  # *args
    takes_names: bool  # **kwargs

    @classmethod
    def of(cls, node: ast.FunctionDef | ast.AsyncFunctionDef, *, is_bound: bool = False) -> "Signature":
        """Read a declaration. `is_bound`: the first argument is given by the call, as `self` is."""
        arguments = node.args
        in_order = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
        required = in_order[: len(in_order) - len(arguments.defaults)]
        by_name = [each.arg for each in arguments.kwonlyargs]
        needed = [
            each.arg
            for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if default is None
        ]
        own = 1 if is_bound and in_order else 0
        return cls(
            tuple(in_order[own:]),
            max(0, len(arguments.posonlyargs) - own),
            frozenset(by_name),
            frozenset([*required[own:], *needed]),
            arguments.vararg is not None,
            arguments.kwarg is not None,
        )

    def misfit(self, call: ast.Call) -> str:
        """Return what is wrong with the arguments, such as "without `path`"; "" if they fit."""
        if any(isinstance(each, ast.Starred) for each in call.args):
            return ""
        named = [each.arg for each in call.keywords]
        if None in named:
            return ""
        names = {name for name in named if name}
        if len(call.args) > len(self.in_order) and not self.takes_more:
            return f"with {_counted(len(call.args))} in order, but it takes {_counted(len(self.in_order))}"
        given = set(self.in_order[: len(call.args)])
        known = set(self.in_order[self.positional_only :]) | self.by_name
        if (unknown := sorted(names - known)) and not self.takes_names:
            return f"with {_quoted(unknown)}, which it does not take"
        if twice := sorted(names & (given - set(self.in_order[: self.positional_only]))):
            return f"with {_quoted(twice)} given twice"
        missing = [name for name in self.in_order if name in self.required - given - names]
        missing += sorted((self.by_name & self.required) - names)
        return f"without {_quoted(missing)}" if missing else ""


def _counted(number: int) -> str:
    return _IN_WORDS[number] if number < len(_IN_WORDS) else f"{number} arguments"


def _quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)

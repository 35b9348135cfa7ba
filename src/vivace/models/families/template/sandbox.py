"""A stranger's chat template, run with limits: it sees only what it is given, and it ends.

Owns the Jinja2 environment: the functions and filters that chat templates use (as Hugging Face's transformers
has them), and the limits. Every loop step, call, output and joined text is charged to a budget, so a template
can neither hang nor eat memory. Does not know what a conversation is.
"""

import datetime
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.compiler import CodeGenerator
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_SOURCE_CHARS = 1 << 18
MOST_CHARS = 1 << 25  # that a rendering writes or copies, all in all
MOST_TEXT_CHARS = 1 << 23  # of any one text
MOST_STEPS = 1 << 20  # loop steps and calls
MOST_S = 10.0
MOST_ITEMS = 10_000  # of a range
MOST_WIDTH = 1_000  # that a format pads to
MOST_BITS = 1 << 12  # of a number
FILTERS = frozenset(
    {
        *("abs", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "from_json", "indent"),
        *("int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject"),
        *("rejectattr", "replace", "reverse", "round", "safe", "select", "selectattr", "sort", "string"),
        *("sum", "title", "capitalize", "tojson", "trim", "unique", "upper"),
    }
)
_PADDING = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
_WIDTH = re.compile(r"\d{4,}|\*")


class TemplateError(Exception):
    """The template cannot write this. The text is one clause that says why."""


class Written(dict[str, Any]):
    """A JSON object, and the text in which it was written: `tojson` gives that text."""

    text = ""


class Budget:
    """What one rendering may still use."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._steps, self._chars, self._end = MOST_STEPS, MOST_CHARS, time.monotonic() + MOST_S

    def charge(self, chars: int = 0) -> None:
        self._steps -= 1
        self._chars -= chars
        if chars > MOST_TEXT_CHARS or self._chars < 0:
            raise TemplateError("it writes too much")
        if self._steps < 0 or time.monotonic() > self._end:
            raise TemplateError("it does not end")


class _Counted:
    """A sequence whose steps are charged. `chars` is the template's own text in the body of the loop."""

    def __init__(self, items: Any, budget: Budget, chars: int) -> None:
        self._items = items if isinstance(items, Sized) else list(_charged(items, budget, 0))
        self._budget, self._chars = budget, chars

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return _charged(self._items, self._budget, self._chars)


def _charged(items: Any, budget: Budget, chars: int) -> Iterator[Any]:
    for item in items:
        budget.charge(chars)
        yield item


class _Generator(CodeGenerator):
    """Joins texts with `~` through the environment, which charges them."""

    def visit_Concat(self, node: nodes.Concat, frame: Any) -> None:
        self.write("environment.joined((")
        for each in node.nodes:
            self.visit(each, frame)
            self.write(", ")
        self.write("))")


class _Generation(Extension):
    """`{% generation %}` marks what training learns from; here its content is written as it is."""

    tags = {"generation"}  # noqa: RUF012  as Jinja2 has it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Sandbox(ImmutableSandboxedEnvironment):
    code_generator_class = _Generator
    intercepted_binops = frozenset({"+", "*", "**", "%", "/", "//", "-"})

    def __init__(self, today: datetime.date) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
            finalize=self._written,
            cache_size=0,
        )
        self.budget = Budget()
        shown = datetime.datetime.combine(today, datetime.time())
        allowed = {name: self.filters[name] for name in FILTERS if name in self.filters}
        self.filters = allowed | {
            "tojson": _to_json,
            "from_json": json.loads,
            "safe": str,  # nothing is escaped here
            "replace": self._replaced,
            "join": self._list_joined,
            "indent": _indented,
            "counted": lambda items, chars: _Counted(items, self.budget, chars),
        }
        self.globals = {
            "range": _short_range,
            "dict": dict,
            "namespace": self.globals["namespace"],
            "raise_exception": _refuse,
            "strftime_now": lambda form: shown.strftime(str(form)),
        }

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Allow lists to grow and shrink, too: they are the template's own, or a copy."""
        is_own = isinstance(obj, list) and attr in ("append", "pop")
        return is_own or super().is_safe_attribute(obj, attr, value)

    # ---- what is charged ---------------------------------------------------------------------------

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        self.budget.charge(len(owner) if isinstance(owner, str) else 0)
        if isinstance(owner, str):
            self._check_text_call(owner, name, args)
        found = super().call(context, obj, *args, **kwargs)
        if isinstance(found, str):
            self.budget.charge(len(found))
        return found

    def _check_text_call(self, owner: str, name: str, args: tuple[Any, ...]) -> None:
        if name in ("format", "format_map") and _WIDTH.search(owner):
            raise TemplateError("it pads text too far")
        if name in _PADDING and any(isinstance(arg, int) and arg > MOST_WIDTH for arg in args):
            raise TemplateError("it pads text too far")
        if name == "replace":
            self._check_replaced(owner, args)
        if name == "join" and args and isinstance(args[0], Sized):
            self.budget.charge(len(owner) * len(args[0]) + _chars_of(args[0]))

    def _check_replaced(self, text: str, args: tuple[Any, ...]) -> None:
        if len(args) >= 2 and all(isinstance(arg, str) for arg in args[:2]):
            times = text.count(args[0]) if args[0] else len(text) + 1
            self.budget.charge(len(text) + times * len(args[1]))

    def call_binop(self, context: Any, name: str, left: Any, right: Any) -> Any:
        if name == "+" and isinstance(left, Sized) and isinstance(right, Sized):
            self.budget.charge(len(left) + len(right))
        elif name == "*":
            self.budget.charge(_product_chars(left, right) + _product_chars(right, left))
        elif name == "%" and isinstance(left, str) and _WIDTH.search(left):
            raise TemplateError("it pads text too far")
        elif name == "**" and not (abs(left) < 1 << 16 and abs(right) <= 64):
            raise TemplateError("it computes with too large numbers")
        if name in "*+-" and any(isinstance(n, int) and n.bit_length() > MOST_BITS for n in (left, right)):
            raise TemplateError("it computes with too large numbers")
        self.budget.charge()
        del context
        return self.binop_table[name](left, right)

    def joined(self, parts: Iterable[Any]) -> str:
        texts = [str(part) for part in parts]
        self.budget.charge(sum(map(len, texts)))
        return "".join(texts)

    def _written(self, value: Any) -> Any:
        text = value if isinstance(value, str) else _shown(value)
        self.budget.charge(len(text))
        return text

    def _replaced(self, text: Any, old: Any, new: Any, count: int = -1) -> str:
        whole, gone, put = str(text), str(old), str(new)
        self._check_replaced(whole, (gone, put))
        return whole.replace(gone, put, -1 if count is None else count)

    def _list_joined(self, items: Any, by: str = "", attribute: str | None = None) -> str:
        found = list(_charged(items, self.budget, 0))
        if attribute is not None:
            found = [self.getitem(item, attribute) for item in found]
        texts = [str(item) for item in found]
        self.budget.charge(len(by) * len(texts) + sum(map(len, texts)))
        return str(by).join(texts)


class Template:
    """One chat template, compiled."""

    def __init__(self, source: str, *, today: datetime.date | None = None) -> None:
        if len(source) > MOST_SOURCE_CHARS:
            raise TemplateError("it is too long")
        self.source = source
        self._sandbox = Sandbox(today or datetime.date.today())
        try:
            tree = self._sandbox.parse(source)
            self.variables = frozenset(meta.find_undeclared_variables(tree))
            self.texts = tuple(_texts(tree))  # what the template itself writes or compares with
            _count_loops(tree)
            code = self._sandbox.compile(tree)
            self._compiled = jinja2.Template.from_code(self._sandbox, code, self._sandbox.globals.copy())
        except jinja2.TemplateError as error:
            raise TemplateError(f"it is not valid: {error}") from error
        except (RecursionError, MemoryError, OverflowError, ValueError, SyntaxError) as error:
            raise TemplateError("it cannot be compiled") from error

    def render(self, **values: Any) -> str:
        """Return what the template writes, or raise a `TemplateError`."""
        budget, pieces, size = self._sandbox.budget, [], 0
        budget.begin()
        try:
            for piece in self._compiled.generate(**values):
                size += len(piece)
                budget.charge(len(piece))
                pieces.append(piece)
                if size > MOST_TEXT_CHARS:
                    raise TemplateError("it writes too much")
        except TemplateError:
            raise
        except RecursionError as error:
            raise TemplateError("it does not end") from error
        except Exception as error:  # what a stranger's program does wrong is not known
            raise TemplateError(f"it stops: {_line(error)}") from error
        return "".join(pieces)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _count_loops(tree: nodes.Template) -> None:
    for loop in tree.find_all(nodes.For):
        own = sum(len(data.data) for data in loop.find_all(nodes.TemplateData))
        loop.iter = nodes.Filter(loop.iter, "counted", [nodes.Const(own)], [], None, None)


def _texts(tree: nodes.Template) -> Iterator[str]:
    for data in tree.find_all(nodes.TemplateData):
        yield data.data
    for const in tree.find_all(nodes.Const):
        if isinstance(const.value, str):
            yield const.value


def _shown(value: Any) -> str:
    if isinstance(value, int | float | bool) or value is None:
        return str(value)
    if isinstance(value, jinja2.Undefined):
        return ""
    return str(value)


def _chars_of(items: Any) -> int:
    return sum(len(item) for item in items if isinstance(item, str))


def _product_chars(many: Any, times: Any) -> int:
    return len(many) * max(0, times) if isinstance(many, Sized) and isinstance(times, int) else 0


def _short_range(*args: int) -> range:
    found = range(*args)
    if len(found) > MOST_ITEMS:
        raise TemplateError("it does not end")
    return found


def _refuse(message: object) -> None:
    raise TemplateError(f"it says: {' '.join(str(message).split())[:200]}")


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if isinstance(indent, int) and indent > 16:
        raise TemplateError("it pads text too far")
    if isinstance(value, Written) and value.text and not (ensure_ascii or indent or separators or sort_keys):
        return value.text
    text = json.dumps(
        value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys, default=_plain
    )
    if not ensure_ascii:
        return text
    # Private-use characters stand for masked ones here, which are ASCII.
    return "".join(
        char if char.isascii() or ord(char) >= 0xF0000 else json.dumps(char)[1:-1] for char in text
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TemplateError("it writes as JSON what is no JSON")


def _indented(text: Any, width: Any = 4, first: bool = False, blank: bool = False) -> str:
    """Indent as Jinja2's filter does, up to a width."""
    if isinstance(width, int) and width > MOST_WIDTH:
        raise TemplateError("it pads text too far")
    from jinja2.filters import do_indent

    return str(do_indent(str(text), width, first, blank))

"""Names that may have no value where a function reads them, since some way comes there without binding them.

Owns the ways through one function or module. Loops may run no time, what a `try` holds may stop anywhere, and
functions inside of it are not followed. Does not say which of these is a fault (`names`).
"""

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from vivace.agent.edits.check.faults.surface import Function, bound_in

_NEVER_RETURN = ("sys.exit", "os._exit", "exit", "quit", "os.abort")


@dataclass(frozen=True)
class State:
    """Names that have a value on every way to here, and those that have one on some way."""

    sure: frozenset[str]
    maybe: frozenset[str]

    def having(self, names: Iterable[str]) -> "State":
        names = frozenset(names)
        return State(self.sure | names, self.maybe | names)

    def without(self, names: Iterable[str]) -> "State":
        names = frozenset(names)
        return State(self.sure - names, self.maybe - names)

    def perhaps(self, names: Iterable[str]) -> "State":
        return State(self.sure, self.maybe | frozenset(names))


Reached = State | None  # None: no way leads here


@dataclass
class Reads:
    """What one function reads of its own names."""

    bound: Counter[str]  # how often each is bound
    unsure: set[str] = field(default_factory=set)  # read where some way has not bound it
    never: set[str] = field(default_factory=set)  # read where no way has bound it


def reads_in(tree: ast.Module, wanted: Collection[str]) -> dict[str, Reads]:
    """Return the reads of these functions by their qualified names, and of the module by ""; no twins."""
    found: dict[str, list[Reads]] = {"": [_reads(tree.body, ())]}
    for name, node in functions_in(tree):
        if name in wanted:
            arguments = [each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)]
            found.setdefault(name, []).append(_reads(node.body, arguments))
    return {name: each[0] for name, each in found.items() if len(each) == 1}


def functions_in(node: ast.AST, above: str = "") -> Iterator[tuple[str, Function]]:
    """Yield all functions with their qualified names."""
    for child in ast.iter_child_nodes(node):
        inner = above
        if isinstance(child, Function | ast.ClassDef):
            inner = f"{above}.{child.name}" if above else child.name
        if isinstance(child, Function):
            yield inner, child
        yield from functions_in(child, inner)


def _reads(body: list[ast.stmt], arguments: Sequence[str]) -> Reads:
    bound = Counter(name for name, node in bound_in(body) if not _is_deletion(node))
    outer = {
        name
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Global | ast.Nonlocal)
        for name in node.names
    }
    names = frozenset(bound) - outer
    way = _Way(names, Reads(Counter({name: count for name, count in bound.items() if name in names})))
    way.run(body, State(frozenset(), frozenset()).having(arguments))
    return way.reads


def _is_deletion(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del)


def _merged(states: Iterable[Reached]) -> Reached:
    reached = [each for each in states if each is not None]
    if not reached:
        return None
    sure = frozenset.intersection(*(each.sure for each in reached))
    return State(sure, frozenset().union(*(each.maybe for each in reached)))


class _Way:
    def __init__(self, names: frozenset[str], reads: Reads) -> None:
        self._names = names
        self.reads = reads
        self._breaks: list[list[Reached]] = []
        self._is_quiet = False

    def run(self, body: Sequence[ast.stmt], state: Reached) -> Reached:
        for statement in body:
            if state is None:
                return None
            state = self._step(statement, state)
        return state

    def _step(self, node: ast.stmt, state: State) -> Reached:
        match node:
            case ast.If():
                state = self._read(node.test, state)
                return _merged([self.run(node.body, state), self.run(node.orelse, state)])
            case ast.While():
                return self._while(node, state)
            case ast.For() | ast.AsyncFor():
                return self._for(node, state)
            case ast.Try() | ast.TryStar():
                return self._try(node, state)
            case ast.With() | ast.AsyncWith():
                return self._with(node, state)
            case ast.Match():
                return self._match(node, state)
            case ast.Return() | ast.Raise():
                self._read(node, state)
                return None
            case ast.Break():
                if self._breaks:
                    self._breaks[-1].append(state)
                return None
            case ast.Continue():
                return None
            case ast.Expr(value=ast.Call(func=called)) if ast.unparse(called) in _NEVER_RETURN:
                return None
        return self._plain(node, state)

    def _plain(self, node: ast.stmt, state: State) -> State:
        """Take a statement without branches: what it reads, then what it binds."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for each in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
                    state = self._read(each, state)
                return state.having([node.name])
            case ast.ClassDef():
                for expression in (*node.decorator_list, *node.bases):
                    state = self._read(expression, state)
                return state.having([node.name])
            case ast.AugAssign(target=ast.Name(id=name)):
                self._note(name, state)
                return self._read(node.value, state).having([name])
            case ast.AnnAssign(value=None):
                return state
            case ast.AnnAssign(value=ast.expr() as value, target=target):
                return self._read(target, self._read(value, state)).having(_bound(target))
            case ast.Delete():
                for each in node.targets:
                    if isinstance(each, ast.Name):
                        self._note(each.id, state)
                        state = state.without([each.id])
                return state
            case ast.Assign(value=value):
                return self._read(node, self._read(value, state)).having(_bound(node))
        return self._read(node, state).having(_bound(node))

    # ---- what has branches ------------------------------------------------------------------------

    def _while(self, node: ast.While, state: State) -> Reached:
        state = self._read(node.test, state.perhaps(_bound(node)))
        self._breaks.append([])
        self.run(node.body, state)
        is_endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        breaks = self._breaks.pop()
        return _merged([None if is_endless else self.run(node.orelse, state), *breaks])

    def _for(self, node: ast.For | ast.AsyncFor, state: State) -> Reached:
        state = self._read(node.iter, state).perhaps(_bound(node))
        self._breaks.append([])
        self.run(node.body, self._read(node.target, state).having(_bound(node.target)))
        breaks = self._breaks.pop()
        return _merged([self.run(node.orelse, state), *breaks])

    def _try(self, node: ast.Try | ast.TryStar, state: State) -> Reached:
        within = [name for statement in node.body for name in _bound(statement)]
        stopped = state.perhaps(within)
        ends = [self.run(node.orelse, self.run(node.body, state))]
        for handler in node.handlers:
            caught = stopped.having([handler.name]) if handler.name else stopped
            if handler.type:
                self._read(handler.type, stopped)
            end = self.run(handler.body, caught)
            ends.append(end.without([handler.name]) if end and handler.name else end)
        after = _merged(ends)
        if not node.finalbody:
            return after
        everything = state.perhaps(_bound(node))
        self.run(node.finalbody, everything)
        was_quiet, self._is_quiet = self._is_quiet, True  # it was judged above, on the worst way
        after = self.run(node.finalbody, after)
        self._is_quiet = was_quiet
        return after

    def _with(self, node: ast.With | ast.AsyncWith, state: State) -> Reached:
        for item in node.items:
            state = self._read(item.context_expr, state)
            if item.optional_vars:
                state = self._read(item.optional_vars, state).having(_bound(item.optional_vars))
        end = self.run(node.body, state)
        may_swallow = any("suppress" in ast.unparse(item.context_expr) for item in node.items)
        return _merged([end, state.perhaps(_bound(node))]) if may_swallow else end

    def _match(self, node: ast.Match, state: State) -> Reached:
        state = self._read(node.subject, state)
        ends: list[Reached] = []
        for case in node.cases:
            taken = state.having(_bound(case.pattern))
            taken = self._read(case.guard, taken) if case.guard else taken
            ends.append(self.run(case.body, taken))
            if isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and not case.guard:
                return _merged(ends)
        return _merged([*ends, state])

    # ---- expressions ------------------------------------------------------------------------------

    def _read(self, node: ast.AST, state: State, hidden: frozenset[str] = frozenset()) -> State:
        """Note every name that is read, but for those in functions, which run later."""
        match node:
            case ast.Lambda() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return state
            case ast.Name(id=name, ctx=ast.Load()):
                if name not in hidden:
                    self._note(name, state)
                return state
            case ast.NamedExpr(target=ast.Name(id=name)):
                return self._read(node.value, state, hidden).having([name])
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                if isinstance(node, ast.GeneratorExp):
                    return self._read(node.generators[0].iter, state, hidden)
                targets = {name for each in node.generators for name in _names_stored(each.target)}
                hidden |= targets
                for each in node.generators:  # conditions bind before the element reads
                    for part in (each.iter, *each.ifs):
                        state = self._read(part, state, hidden)
        for child in ast.iter_child_nodes(node):
            state = self._read(child, state, hidden)
        return state

    def _note(self, name: str, state: State) -> None:
        if name not in self._names or name in state.sure or self._is_quiet:
            return
        (self.reads.unsure if name in state.maybe else self.reads.never).add(name)


def _bound(node: ast.AST) -> list[str]:
    """Return the names that one node binds in its own scope."""
    holder = node if isinstance(node, ast.stmt) else ast.Expr(node)  # type: ignore[arg-type]
    return [name for name, each in bound_in([holder]) if not _is_deletion(each)]


def _names_stored(target: ast.expr) -> Iterator[str]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id

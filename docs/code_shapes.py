"""What a reference page is made of: classes with their fields and comments, read from the source, and tables.

Owns reading (nothing is imported for it) and Markdown. Does not own which page shows what (`generate`).
"""

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "vivace"


@dataclass(frozen=True)
class Field:
    name: str
    kind: str  # its type, as a reader writes it
    default: str  # as in the source; "" if it must be given
    text: str


@dataclass(frozen=True)
class Shape:
    """A class whose fields are documented."""

    name: str
    text: str
    fields: list[Field]


# ---- reading the source -----------------------------------------------------------------------------


def shapes(file: str) -> dict[str, Shape]:
    """Return the classes of a module of src/vivace, by name, in the order of the file."""
    source = (SOURCE / file).read_text("utf-8")
    comments = dict(_comments(source))
    lines = source.splitlines()
    body = ast.parse(source).body
    aliases = {ast.unparse(node.targets[0]): node.value for node in body if isinstance(node, ast.Assign)}
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    return {
        node.name: Shape(
            node.name,
            " ".join((ast.get_docstring(node) or "").split()),
            [
                _field(statement, aliases, comments, lines)
                for statement in node.body
                if isinstance(statement, ast.AnnAssign) and "ClassVar" not in ast.dump(statement.annotation)
            ],
        )
        for node in classes
    }


def _comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ").removeprefix("type: ignore")


def _field(
    statement: ast.AnnAssign, aliases: dict[str, ast.expr], comments: dict[int, str], lines: list[str]
) -> Field:
    above = []
    row = statement.lineno - 1
    while row in comments and lines[row - 1].lstrip().startswith("#"):
        above.append(comments[row])
        row -= 1
    assert statement.end_lineno is not None
    behind = [comments.get(row, "") for row in range(statement.lineno, statement.end_lineno + 1)]
    return Field(
        ast.unparse(statement.target),
        _kind(statement.annotation, aliases),
        ast.unparse(statement.value) if statement.value else "",
        " ".join(filter(None, [*reversed(above), *behind])),
    )


def _kind(annotation: ast.expr, aliases: dict[str, ast.expr]) -> str:
    """Return a type as a reader writes it: aliases and `Annotated` resolved, `Literal` as its values."""
    match annotation:
        case ast.BinOp(left, ast.BitOr(), ast.Constant(None) | ast.Name("UnsetType")):
            return _kind(left, aliases)  # what may be left out has a default, which is shown
        case ast.BinOp(left, ast.BitOr(), right):
            return f"{_kind(left, aliases)} or {_kind(right, aliases)}"
        case ast.Subscript(ast.Name("Annotated"), ast.Tuple([inner, *_])):
            return _kind(inner, aliases)
        case ast.Subscript(ast.Name("Literal"), ast.Tuple(values)):
            return " or ".join(str(ast.literal_eval(value)) for value in values)
        case ast.Subscript(ast.Name(outer), ast.Tuple(inner)):
            return f"{outer}[{', '.join(_kind(each, aliases) for each in inner)}]"
        case ast.Subscript(ast.Name(outer), inner):
            return f"{outer}[{_kind(inner, aliases)}]"
        case ast.Name(alias) if alias in aliases:
            return _kind(aliases[alias], aliases)
        case ast.Attribute(attr="Raw"):
            return "JSON"
    return ast.unparse(annotation)


# ---- writing tables ---------------------------------------------------------------------------------


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def fields_table(fields: Iterable[Field]) -> str:
    rows = [
        [f"`{one.name}`", f"`{one.kind}`", f"`{one.default}`" if one.default else "must be given", one.text]
        for one in fields
    ]
    return table(["field", "type", "default", "meaning"], rows)


def told_table(fields: Iterable[Field]) -> str:
    """Return a table of what the server sends: nothing there is left to choose, so no defaults."""
    return table(
        ["field", "type", "meaning"], [[f"`{one.name}`", f"`{one.kind}`", one.text] for one in fields]
    )


def section(shape: Shape, *, level: str = "###") -> str:
    parts = [f"{level} `{shape.name}`", shape.text, fields_table(shape.fields) if shape.fields else ""]
    return "\n\n".join(part for part in parts if part)

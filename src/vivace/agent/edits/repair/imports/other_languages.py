"""The imports that a new piece of Go or JavaScript needs, only where nothing can be meant but them.

Owns two clear cases. A package of Go's standard library, or a module of Node's, that is used as `name.member`
and in no other way; and a name that is called, which the repository imports from one package alone. Does
nothing where a name could be a variable.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tree_sitter import Node

from vivace.agent.edits.find.languages import GO, JAVASCRIPT, TSX, TYPESCRIPT, Language
from vivace.agent.edits.repair.imports.block import LineEdit
from vivace.agent.edits.repair.imports.origins import MAX_BYTES, root_of, source_files

_GO = """
    bufio bytes context errors fmt io log maps math os reflect regexp slices sort strconv strings sync testing
    time unicode path/filepath net/http net/url encoding/json encoding/csv encoding/base64 math/rand os/exec
    sync/atomic unicode/utf8 container/heap container/list crypto/sha256 html/template
"""
_NODE = "fs path os util http https url zlib readline events stream child_process"
GO_PACKAGES = {path.rpartition("/")[2]: path for path in _GO.split()}
NODE_MODULES = frozenset(_NODE.split())
SCRIPTS = (JAVASCRIPT, TYPESCRIPT, TSX)
_NAMED = re.compile(r"^import\s*\{([^}]*)\}\s*from\s*(['\"])([^'\".][^'\"]*)\2", re.MULTILINE)


@dataclass(frozen=True)
class Uses:
    """How the names of a text are used."""

    objects: frozenset[str]  # only as `name.member`
    called: frozenset[str]  # only as `name(…)`


def edits_for(path: Path, language: Language, old: str, new: str) -> list[LineEdit]:
    """Return the edits of `new` that add its imports, from the end of the file to its beginning."""
    before, after = uses_in(language, old), uses_in(language, new)
    objects = after.objects - before.objects
    if language is GO:
        edits = [_go_edit(language, new, GO_PACKAGES[name]) for name in sorted(objects & GO_PACKAGES.keys())]
    elif language in SCRIPTS:
        edits = [_node_edit(language, new, name) for name in sorted(objects & NODE_MODULES)]
        called = sorted(name for name in after.called if not re.search(rf"\b{re.escape(name)}\b", old))
        edits += [_named_edit(language, new, name, _packages_of(path, name)) for name in called]
    else:
        edits = []
    found = [each for each in edits if each is not None]
    return sorted(found, key=lambda edit: edit.first, reverse=True)


def uses_in(language: Language, text: str) -> Uses:
    """Return the names that are used in one way alone. Whatever is imported or declared is none of them."""
    as_object, as_function, otherwise = set[str](), set[str](), set[str]()
    for node in _nodes(language.parse(text).root_node):
        if node.type not in (
            "identifier",
            "package_identifier",
            "shorthand_property_identifier",
            "type_identifier",
        ):
            continue
        name, parent = _text(node), node.parent
        kind = parent.type if parent else ""
        if kind in ("selector_expression", "member_expression", "qualified_type") and _is_first(node):
            as_object.add(name)
        elif kind == "call_expression" and _is_first(node):
            as_function.add(name)
        elif kind != "selector_expression":
            otherwise.add(name)
    imported = _imported(language, text)
    return Uses(
        frozenset(as_object - as_function - otherwise - imported),
        frozenset(as_function - as_object - otherwise - imported),
    )


def _imported(language: Language, text: str) -> set[str]:
    """Return the packages that a Go file has: an import has no identifier of its own."""
    if language is not GO:
        return set()
    paths = [
        _text(node).strip('"`')
        for node in _nodes(language.parse(text).root_node)
        if node.parent and node.parent.type == "import_spec" and "string" in node.type
    ]
    return {path.rpartition("/")[2] for path in paths}


def _go_edit(language: Language, text: str, package: str) -> LineEdit | None:
    """Return a line in the brackets of the first import, or an import below the others or `package`."""
    root = language.parse(text).root_node
    listed = next((node for node in _nodes(root) if node.type == "import_spec_list"), None)
    if listed is not None and listed.start_point.row < listed.end_point.row:
        rows = [
            node.start_point.row
            for node in listed.named_children
            if node.type == "import_spec" and _text(node).strip('"`') < package
        ]
        line = (rows[-1] if rows else listed.start_point.row) + 2
        return LineEdit(line, line - 1, f'\t"{package}"\n')
    imports = [node for node in root.children if node.type == "import_declaration"]
    clauses = [node for node in root.children if node.type == "package_clause"]
    if not imports and not clauses:
        return None
    line = (imports or clauses)[-1].end_point.row + 2
    return LineEdit(line, line - 1, f'{"" if imports else chr(10)}import "{package}"\n')


def _node_edit(language: Language, text: str, name: str) -> LineEdit | None:
    """Return an import of Node's module, written as the file's other imports are."""
    root = language.parse(text).root_node
    imports = [node for node in root.children if node.type == "import_statement"]
    if imports:
        prefix = "node:" if '"node:' in text or "'node:" in text else ""
        quote = "'" if "'" in _text(imports[-1]) else '"'
        end = ";" if _text(imports[-1]).endswith(";") else ""
        line = imports[-1].end_point.row + 2
        return LineEdit(line, line - 1, f"import {name} from {quote}{prefix}{name}{quote}{end}\n")
    found = list(re.finditer(r"^(?:const|let|var) [^\n]*= require\((['\"])[^\n]*$", text, re.MULTILINE))
    if not found:
        return None
    last, quote = found[-1], found[-1][1]
    line = text.count("\n", 0, last.start()) + 2
    end = ";" if last[0].rstrip().endswith(";") else ""
    return LineEdit(line, line - 1, f"const {name} = require({quote}{name}{quote}){end}\n")


def _named_edit(language: Language, text: str, name: str, packages: set[str]) -> LineEdit | None:
    """Return an import of a name that the repository has from one package alone."""
    imports = [node for node in language.parse(text).root_node.children if node.type == "import_statement"]
    if len(packages) != 1 or not imports:
        return None
    quote = "'" if "'" in _text(imports[-1]) else '"'
    end = ";" if _text(imports[-1]).endswith(";") else ""
    line = imports[-1].end_point.row + 2
    return LineEdit(line, line - 1, f"import {{ {name} }} from {quote}{next(iter(packages))}{quote}{end}\n")


def _packages_of(path: Path, name: str) -> set[str]:
    """Return the packages from which files of the repository import the name."""
    found = set()
    for file in source_files(root_of(path), *(suffix for each in SCRIPTS for suffix in each.suffixes)):
        try:
            raw = file.read_bytes()
        except OSError:
            continue
        if len(raw) <= MAX_BYTES and name.encode() in raw:
            for names, _, package in _NAMED.findall(raw.decode("utf-8", "replace")):
                if name in (each.strip() for each in names.split(",")):
                    found.add(package)
    return found


def _nodes(root: Node) -> Iterator[Node]:
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending += node.children


def _is_first(node: Node) -> bool:
    return node.parent is not None and node.parent.children[0] == node


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")

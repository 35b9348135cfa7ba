"""Which language a file is written in, and which of its syntax nodes are units.

Owns the table of languages: suffixes, interpreters, grammar, node types. A grammar is imported when first
parsed with. Does not walk trees (`units`), nor judge them (`verify`).
"""

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import tree_sitter

_HEAD_BYTES = 65536
_CPP_HEADER = re.compile(
    rb"^[^\S\n]*(class|namespace|template|using|public:|private:)\b|\w::\w", re.MULTILINE
)


@dataclass(frozen=True, eq=False)
class Language:
    """One language. Node types are those of its tree-sitter grammar."""

    name: str
    fence: str  # the tag after the opening backticks
    suffixes: tuple[str, ...]
    grammar: tuple[str, str]  # module of the grammar's wheel, function in it
    kinds: Mapping[str, str]  # node type -> kind of unit
    wrappers: frozenset[str] = frozenset()  # nodes around a unit whose lines are the unit's too
    scopes: frozenset[str] = frozenset()  # nodes that are no units but may hold some
    named_scopes: frozenset[str] = frozenset()  # scopes whose name qualifies the units in them
    attached: frozenset[str] = frozenset()  # siblings above a unit that belong to it
    doc_comment: str | None = None  # how a comment directly above must begin to belong to the unit
    interpreters: tuple[str, ...] = ()
    filenames: tuple[str, ...] = ()

    def parse(self, text: str) -> tree_sitter.Tree:
        """Return the syntax tree of `text`. Its byte offsets count UTF-8 bytes."""
        return _parser(*self.grammar).parse(text.encode("utf-8"))


@cache
def _parser(module: str, function: str) -> tree_sitter.Parser:
    grammar = getattr(importlib.import_module(module), function)
    return tree_sitter.Parser(tree_sitter.Language(grammar()))


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _kinds(functions: str = "", classes: str = "", methods: str = "", types: str = "") -> dict[str, str]:
    by_kind = {"function": functions, "class": classes, "method": methods, "type": types}
    return {name: kind for kind, names in by_kind.items() for name in names.split()}


PYTHON = Language(
    "Python",
    "python",
    (".py", ".pyi", ".pyw"),
    ("tree_sitter_python", "language"),
    _kinds(functions="function_definition", classes="class_definition", types="type_alias_statement"),
    wrappers=_set("decorated_definition"),
    scopes=_set(
        "block if_statement elif_clause else_clause try_statement except_clause except_group_clause"
        " finally_clause with_statement for_statement while_statement"
    ),
    interpreters=("python", "pypy"),
)
_JS_KINDS = _kinds(
    functions="function_declaration generator_function_declaration lexical_declaration variable_declaration"
    " expression_statement",
    classes="class_declaration",
    methods="method_definition field_definition",
)
JAVASCRIPT = Language(
    "JavaScript",
    "javascript",
    (".js", ".jsx", ".mjs", ".cjs"),
    ("tree_sitter_javascript", "language"),
    _JS_KINDS,
    wrappers=_set("export_statement"),
    scopes=_set("class_body"),
    attached=_set("decorator"),
    doc_comment=r"/\*\*",
    interpreters=("node", "bun"),
)
_TS_KINDS = _JS_KINDS | _kinds(
    functions="function_signature",
    classes="abstract_class_declaration",
    methods="public_field_definition abstract_method_signature method_signature",
    types="interface_declaration type_alias_declaration enum_declaration",
)
TYPESCRIPT = Language(
    "TypeScript",
    "typescript",
    (".ts", ".mts", ".cts"),
    ("tree_sitter_typescript", "language_typescript"),
    _TS_KINDS,
    wrappers=_set("export_statement ambient_declaration"),
    scopes=_set("class_body statement_block expression_statement"),
    named_scopes=_set("internal_module module"),
    attached=_set("decorator"),
    doc_comment=r"/\*\*",
    interpreters=("deno", "tsx", "ts-node"),
)
TSX = Language(
    "TSX",
    "tsx",
    (".tsx",),
    ("tree_sitter_typescript", "language_tsx"),
    _TS_KINDS,
    wrappers=TYPESCRIPT.wrappers,
    scopes=TYPESCRIPT.scopes,
    named_scopes=TYPESCRIPT.named_scopes,
    attached=TYPESCRIPT.attached,
    doc_comment=TYPESCRIPT.doc_comment,
)
GO = Language(
    "Go",
    "go",
    (".go",),
    ("tree_sitter_go", "language"),
    _kinds(functions="function_declaration", methods="method_declaration", types="type_spec type_alias"),
    wrappers=_set("type_declaration"),
    doc_comment=r"//|/\*",
)
RUST = Language(
    "Rust",
    "rust",
    (".rs",),
    ("tree_sitter_rust", "language"),
    _kinds(
        functions="function_item function_signature_item macro_definition",
        classes="impl_item trait_item",
        types="struct_item enum_item union_item type_item",
    ),
    scopes=_set("declaration_list foreign_mod_item"),
    named_scopes=_set("mod_item"),
    attached=_set("attribute_item"),
    doc_comment=r"///|/\*\*",
    interpreters=("rust-script",),
)
_C_SCOPES = "preproc_if preproc_ifdef preproc_else preproc_elif preproc_elifdef linkage_specification"
C = Language(
    "C",
    "c",
    (".c", ".h"),
    ("tree_sitter_c", "language"),
    _kinds(
        functions="function_definition",
        types="struct_specifier union_specifier enum_specifier type_definition",
    ),
    scopes=_set(f"{_C_SCOPES} declaration_list"),
    doc_comment=r"//|/\*",
)
CPP = Language(
    "C++",
    "cpp",
    (".cpp", ".cc", ".cxx", ".c++", ".hpp", ".hh", ".hxx", ".h++", ".ipp", ".tpp"),
    ("tree_sitter_cpp", "language"),
    _kinds(
        functions="function_definition",
        classes="class_specifier struct_specifier",
        types="union_specifier enum_specifier type_definition alias_declaration concept_definition",
    ),
    wrappers=_set("template_declaration"),
    scopes=_set(f"{_C_SCOPES} declaration_list field_declaration_list"),
    named_scopes=_set("namespace_definition"),
    doc_comment=r"//|/\*",
)
JAVA = Language(
    "Java",
    "java",
    (".java",),
    ("tree_sitter_java", "language"),
    _kinds(
        classes="class_declaration interface_declaration enum_declaration record_declaration"
        " annotation_type_declaration",
        methods="method_declaration constructor_declaration compact_constructor_declaration",
    ),
    scopes=_set("class_body interface_body enum_body enum_body_declarations annotation_type_body"),
    doc_comment=r"/\*\*",
)
BASH = Language(
    "Bash",
    "bash",
    (".sh", ".bash"),
    ("tree_sitter_bash", "language"),
    _kinds(functions="function_definition"),
    scopes=_set("if_statement elif_clause else_clause"),
    doc_comment=r"#(?!!)",
    interpreters=("bash", "sh", "dash"),
    filenames=(".bashrc", ".bash_profile", ".bash_aliases", ".profile"),
)
LANGUAGES = (PYTHON, JAVASCRIPT, TYPESCRIPT, TSX, GO, RUST, C, CPP, JAVA, BASH)
_SUFFIXES = frozenset(suffix for language in LANGUAGES for suffix in language.suffixes)


def language_for(path: Path) -> Language | None:
    """Return the language of `path` by suffix, name or `#!` line, or None if there is no grammar for it."""
    suffix = path.suffix.lower()
    if suffix == ".h":
        return CPP if _CPP_HEADER.search(_head(path)) else C
    for language in LANGUAGES:
        if suffix in language.suffixes or path.name in language.filenames:
            return language
    return None if suffix else _language_of_script(_head(path))


def has_language(folder: Path, path: str) -> bool:
    """Return whether there is a grammar for a file. It is opened only where it has no suffix."""
    name = path.rpartition("/")[2]
    suffix = name[name.rfind(".") :].lower() if name.rfind(".") > 0 else ""
    return suffix in _SUFFIXES if suffix else language_for(folder / path) is not None


def fence_tag_for(path: Path) -> str:
    """Return the tag of a fence around this file: the language's, or the suffix."""
    language = language_for(path)
    return language.fence if language else path.suffix.lower().removeprefix(".") or "text"


def _language_of_script(head: bytes) -> Language | None:
    first_line = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    words = first_line.removeprefix("#!").split() if first_line.startswith("#!") else []
    for word in words:
        program = re.sub(r"[\d.]+$", "", word.rsplit("/", 1)[-1])  # python3.11 -> python
        for language in LANGUAGES:
            if program in language.interpreters:
                return language
    return None


def _head(path: Path) -> bytes:
    """Return the file's first bytes, or nothing if it cannot be read: `read_source` reports that."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return b""

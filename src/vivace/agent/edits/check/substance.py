"""Whether an answer changes more than comments, docstrings and white space, where more was asked for.

Owns the comparison, by the tokens of the syntax tree in any language and by Python's own tree, which knows
no quotes, brackets or commas that mean nothing, and which requests are about words.
Does not own what becomes of such an answer (`rewriting`, `flow`).
"""

import ast
import re
import warnings

from tree_sitter import Node

from vivace.agent.edits.find.languages import PYTHON, Language
from vivace.agent.edits.find.request import request_in

WORDS_ALONE = "It changes comments, docstrings or white space alone."
SHORT_CHARS = 200  # of a request; in a longer one these words are part of the story
_WORDS = r"docstrings?|doc ?comments?|documentation|docs|typos?|wording"
_ABOUT_WORDS = re.compile(
    rf"\b(?:{_WORDS}|comment(?:s|ed|ing)?|document(?:s|ed|ing)?|spell\w*|rephrase\w*|reword\w*|explain\w*"
    r"|describe\w*|todos?|fixme|licen[cs]e|copyright|header|grammar|english|translat\w+|(?:re)?format\w*"
    r"|indent\w*|white ?space|blank|empty lines?|line (?:breaks?|lengths?|ends?)|newlines?|wrap\w*|align\w*"
    r"|spaces?|tabs?|pep ?8|black|lint\w*|noqa|type: ignore|pragma|shebang|encoding|uncomment\w*|readab\w+"
    r"|tidy|clean ?up|(?:single|double) quotes|parenthes\w+|brackets?|trailing commas?)\b",
    re.I,
)
_ASKED = re.compile(
    r"\b(?:add|write|update|fix|correct|improve|extend|rewrite|change|remove|delete|shorten|expand)\b"
    rf"[^.;:\n]{{0,40}}\b(?:{_WORDS}|code comments?|indentation|formatting)\b",
    re.I,
)


def is_about_words(instruction: str) -> bool:
    """Return whether comments, docstrings or the form of the text are what is to be changed."""
    asked = request_in(instruction)
    return bool((_ABOUT_WORDS if len(asked) <= SHORT_CHARS else _ASKED).search(asked))


def changes_words_alone(language: Language | None, before: str, after: str) -> bool:
    """Return whether two texts of a file are the same code. One without a grammar is all words."""
    if language is None or before == after:
        return False
    return _tokens(language, before) == _tokens(language, after) or (
        language is PYTHON and _is_same_tree(before, after)
    )


def _is_same_tree(before: str, after: str) -> bool:
    """Return whether two texts are the same Python, but for docstrings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trees = [_without_docstrings(ast.parse(text)) for text in (before, after)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return ast.dump(trees[0]) == ast.dump(trees[1])


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        match getattr(node, "body", None):
            case [ast.Expr(value=ast.Constant(value=str())), *_] as body:
                body[:1] = [] if body[1:] else [ast.Pass()]
    return tree


def _tokens(language: Language, text: str) -> list[bytes]:
    """Return the text of all leaves but comments and docstrings, and where blocks begin and end."""
    found: list[bytes] = []
    pending: list[Node | bytes] = [language.parse(text).root_node]
    while pending:
        node = pending.pop()
        if isinstance(node, bytes):
            found.append(node)
        elif "comment" in node.type or (language is PYTHON and is_docstring(node)):
            continue
        elif node.child_count and node.type != "string":
            is_block = node.type == "block"  # in Python white space alone says what belongs to it
            pending += [b"end", *reversed(node.children), b"begin"] if is_block else reversed(node.children)
        elif node.text and node.text.strip():
            found.append(node.text)
    return found


def is_docstring(node: Node) -> bool:
    """Return whether a node is a string that stands first in a module, class or function."""
    if node.type != "expression_statement" or node.named_child_count != 1 or node.parent is None:
        return False
    if node.named_children[0].type != "string" or node.parent.type not in ("block", "module"):
        return False
    above = [child for child in node.parent.named_children if "comment" not in child.type]
    return bool(above) and above[0] == node

"""What a declaration is called, grammar by grammar: name, the names it belongs to, and its body.

Owns the peculiar cases: C declarators, Go receivers, Rust impl blocks, JavaScript constants that hold a
function. Does not know about lines or files: see `units`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from tree_sitter import Node

_FUNCTION_VALUES = {"arrow_function", "function_expression", "generator_function"}
_TRANSPARENT_VALUES = {"parenthesized_expression", "as_expression", "satisfies_expression"}
_COMPONENT_CALLS = {"memo", "forwardRef"}  # React: const List = memo(function …)
_NAME_TYPES = {"identifier", "field_identifier", "type_identifier", "destructor_name", "operator_name"}


@dataclass(frozen=True)
class Declared:
    """A declaration. `within` are names it states itself, such as the receiver of a Go method."""

    name: str
    kind: str
    name_end: int  # byte offset just after the name
    within: tuple[str, ...] = ()
    body: Node | None = None


def declared(node: Node, kind: str) -> Declared | None:
    """Return what `node` declares, or None for a constant, a forward declaration or a call."""
    special = _SPECIAL.get(node.type)
    if special is not None:
        return special(node, kind)
    if node.child_by_field_name("declarator") is not None:
        return _function_of_c(node, kind)
    name = node.child_by_field_name("name") or node.child_by_field_name("left")
    if name is None:
        return None
    receiver = node.child_by_field_name("receiver")
    within = (_receiver_type(receiver),) if receiver else ()
    return Declared(text_of(name), kind, name.end_byte, within, node.child_by_field_name("body"))


def text_of(node: Node) -> str:
    return (node.text or b"").decode("utf-8")


def _receiver_type(receiver: Node) -> str:
    """`(t *Tree[K, V])` -> "Tree"."""
    words: list[str] = re.findall(r"\w+", text_of(receiver).split("[")[0])
    return words[-1] if words else ""


def _impl_of_rust(node: Node, kind: str) -> Declared | None:
    target, trait = node.child_by_field_name("type"), node.child_by_field_name("trait")
    if target is None:
        return None
    name = f"impl {_bare(trait)} for {_bare(target)}" if trait is not None else f"impl {_bare(target)}"
    return Declared(name, kind, target.end_byte, body=node.child_by_field_name("body"))


def _bare(node: Node) -> str:
    """Return a type's own name without generics, path, reference sign or lifetime."""
    words = re.sub(r"<.*", "", text_of(node), flags=re.DOTALL).split("::")
    return words[-1].lstrip("&'").strip()


def members_belong_to(found: Declared) -> str:
    """Return the name that qualifies a class's members: `Point` for `impl Display for Point`."""
    return found.name.rsplit(" ", 1)[-1] if found.name.startswith("impl ") else found.name


def _function_of_c(node: Node, kind: str) -> Declared | None:
    name = _declarator_name(node.child_by_field_name("declarator"))
    if name is None:
        return None
    *within, last = _qualified_parts(name)
    body = node.child_by_field_name("body")
    return Declared(last, "method" if within else kind, name.end_byte, tuple(within), body)


def _declarator_name(node: Node | None) -> Node | None:
    """Find the declared name below pointers, references and parameter lists."""
    while node is not None:
        if node.type in _NAME_TYPES or node.type in ("qualified_identifier", "operator_cast"):
            return node
        inner = node.child_by_field_name("declarator")
        node = inner if inner is not None else next(iter(node.named_children), None)
    return None


def _qualified_parts(name: Node) -> list[str]:
    """`a::Foo<T>::bar` -> ["a", "Foo", "bar"]; an operator keeps its signs."""
    text, operator = " ".join(text_of(name).split()), ""
    found = re.search(r"\boperator\b\s*(\(\)|[^\s(]+)", text)
    if found:
        text, operator = text[: found.start()], " ".join(found[0].split())
    while re.search(r"<[^<>]*>", text):
        text = re.sub(r"<[^<>]*>", "", text)
    return [part.strip() for part in [*text.split("::"), operator] if part.strip()]


def _type_of_c(node: Node, kind: str) -> Declared | None:
    """Declare a struct, union, enum or class that has a body. A forward declaration is no unit."""
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if name is None or body is None:
        return None
    return Declared(_qualified_parts(name)[-1], kind, name.end_byte, body=body)


def _typedef_of_c(node: Node, kind: str) -> Declared | None:
    """The name comes last here, so the declaration opens at its struct's brace or after `typedef`."""
    name, held = _declarator_name(node.child_by_field_name("declarator")), node.child_by_field_name("type")
    if name is None or held is None:
        return None
    return Declared(text_of(name), kind, node.children[0].end_byte, body=held.child_by_field_name("body"))


def _constant_of_js(node: Node, _kind: str) -> Declared | None:
    """`const f = () => …`: a unit if the first constant holds a function or a class."""
    first = next((child for child in node.named_children if child.type == "variable_declarator"), None)
    name = first and first.child_by_field_name("name")
    return _holder(name, first.child_by_field_name("value"), "function") if first and name else None


def _assignment_of_js(node: Node, _kind: str) -> Declared | None:
    """`exports.f = function …` and `Foo.prototype.bar = …`."""
    inner = next(iter(node.named_children), None)
    if inner is None or inner.type != "assignment_expression":
        return None
    left = inner.child_by_field_name("left")
    found = left and _holder(left, inner.child_by_field_name("right"), "function")
    if not found:
        return None
    parts = [part for part in found.name.split(".") if part not in ("module", "exports", "prototype")]
    return replace(found, name=parts[-1] if parts else "module.exports", within=tuple(parts[:-1]))


def _field_of_js(node: Node, kind: str) -> Declared | None:
    name = node.child_by_field_name("property") or node.child_by_field_name("name")
    return _holder(name, node.child_by_field_name("value"), kind) if name else None


def _default_of_js(node: Node, _kind: str) -> Declared:
    """`export default () => …` and `export default class …`, named or not."""
    name = node.child_by_field_name("name")
    kind = "class" if node.type == "class" else "function"
    body = node.child_by_field_name("body")
    return Declared(text_of(name) if name else "default", kind, (name or node).start_byte, body=body)


def _holder(name: Node, value: Node | None, kind: str) -> Declared | None:
    while value is not None and value.type in _TRANSPARENT_VALUES:
        value = next(iter(value.named_children), None)
    if value is not None and value.type == "call_expression":
        value = _component(value)
    if value is None or value.type not in _FUNCTION_VALUES | {"class"}:
        return None
    body = value.child_by_field_name("body")
    return Declared(text_of(name), "class" if value.type == "class" else kind, name.end_byte, body=body)


def _component(call: Node) -> Node | None:
    called, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
    if called is None or arguments is None or text_of(called).rsplit(".", 1)[-1] not in _COMPONENT_CALLS:
        return None
    return next(iter(arguments.named_children), None)


_SPECIAL: dict[str, Callable[[Node, str], Declared | None]] = {
    "impl_item": _impl_of_rust,
    "struct_specifier": _type_of_c,
    "class_specifier": _type_of_c,
    "union_specifier": _type_of_c,
    "enum_specifier": _type_of_c,
    "type_definition": _typedef_of_c,
    "lexical_declaration": _constant_of_js,
    "variable_declaration": _constant_of_js,
    "expression_statement": _assignment_of_js,
    "field_definition": _field_of_js,
    "public_field_definition": _field_of_js,
    "arrow_function": _default_of_js,
    "function_expression": _default_of_js,
    "generator_function": _default_of_js,
    "class": _default_of_js,
}

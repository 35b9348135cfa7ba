"""The units of a file, language by language, and how a name finds one."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.edits.apply.source import SourceFile, source_from_bytes
from vivace.agent.edits.find.languages import LANGUAGES, fence_tag_for, language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import Unit, file_unit, find_unit, lines_unit, new_unit_after, unit_around
from vivace.errors import UnitNotFound


def source_of(name: str, text: str) -> SourceFile:
    return source_from_bytes(Path(name), text.encode())


def units_of(name: str, text: str) -> list[Unit]:
    return list_units(source_of(name, text), language_for(Path(name)))


def shown(name: str, text: str) -> list[str]:
    return [f"{unit.kind} {unit.qualified_name} {unit.lines_text}" for unit in units_of(name, text)]


PYTHON = '''import os

LIMIT = 3

@cache
# why
@other(1)
async def load(a,
               b=1) -> int:
    def inner(): pass
    return 1
    # done

class Täsk(Base):
    """Doc."""
    x = 1

    @property
    def done(self): return self.x

    class Inner:
        def go(self):
            pass

if os.name == "nt":
    def only(): ...
'''


def test_python() -> None:
    """Decorators, async, nested classes, unicode names and trailing comments; no functions in functions."""
    assert shown("a.py", PYTHON) == [
        "function load 5-12",
        "class Täsk 14-23",
        "method Täsk.done 18-19",
        "class Täsk.Inner 21-23",
        "method Täsk.Inner.go 22-23",
        "function only 26",
    ]


def test_the_unit_around_a_line_is_the_smallest() -> None:
    """A line of a method is the method's, one of the class alone is the class's, and some are nobody's."""
    units = units_of("a.py", "X = 1\n\nclass A:\n    y = 2\n\n    def f(self):\n        return 3\n")
    names = [unit.qualified_name if (unit := unit_around(units, line)) else "" for line in range(1, 8)]
    assert names == ["", "", "A", "A", "A", "A.f", "A.f"]


def test_opening_and_signature() -> None:
    """A unit opens with its lines up to the body; the signature is the declaration alone, on one line."""
    load, _, done, _, go, only = units_of("a.py", PYTHON)
    assert load.signature == "async def load(a, b=1) -> int"
    assert load.signature_first_line == 8
    assert load.opening == PYTHON[PYTHON.index("@cache") : PYTHON.index("    def inner")]
    assert done.opening == "    @property\n    def done(self):"
    assert (go.indent, go.parent) == ("        ", "Täsk.Inner")
    assert only.opening == "    def only():"


def test_python_overloads_are_one_unit() -> None:
    """`@overload` signatures belong to the function that follows them."""
    text = "@overload\ndef f(a: int): ...\n@typing.overload\ndef f(a: str): ...\ndef f(a):\n    return a\n"
    (unit,) = units_of("a.py", text)
    assert (unit.first_line, unit.last_line) == (1, 6)
    assert text.startswith(unit.opening)
    assert unit.opening.endswith("def f(a):\n")


def test_typescript() -> None:
    """Exports, overloads, generics, decorators, arrow functions, namespaces, types and default exports."""
    text = """/** Adds. */
export default async function add<T extends { a: 1 }>(a: T): Promise<T> {
  return a;
}
function over(a: string): void;
function over(a: number): void {
}
export const pick = async <T,>(a: T) => {
  return a;
};
const LIMIT = 3;
@Injectable()
export abstract class Store<T> {
  private n = 1;
  /** d */
  @dec()
  get(): T {
    return 1;
  }
  handle = () => {
  };
  abstract q(): void;
}
export interface Shape { a: string }
type Alias = {
  b: number;
};
enum Colour { Red }
namespace N {
  export function inner() {
  }
}
declare function ambient(): void;
"""
    assert shown("a.ts", text) == [
        "function add 1-4",
        "function over 5-7",
        "function pick 8-10",
        "class Store 12-23",
        "method Store.get 15-19",
        "method Store.handle 20-21",
        "method Store.q 22",
        "type Shape 24",
        "type Alias 25-27",
        "type Colour 28",
        "function N.inner 30-31",
        "function ambient 33",
    ]


def test_javascript_and_tsx() -> None:
    """Anonymous default exports, exports of CommonJS, prototypes and React components."""
    text = """const { a, b } = require("x");
exports.load = function () {
};
Foo.prototype.bar = function () {
};
const Row = React.memo(({ x }) => {
  return <p>{x}</p>;
});
const total = items.map((i) => i + 1);
export default () => {
};
"""
    expected = ["function load 2-3", "function Foo.bar 4-5", "function Row 6-8", "function default 10-11"]
    assert shown("a.jsx", text) == expected
    assert shown("a.tsx", text) == expected


def test_go() -> None:
    """Doc comments, pointer and generic receivers, grouped types."""
    text = """package main

// Tree holds.
type Tree[K any] struct {
\ta int
}

type (
\tA = int
\t// B doc
\tB interface{ M() }
)

var f = func() {}

// Get gets.
// More.
func (t *Tree[K]) Get(x int) error {
\treturn nil
}

// not attached

func Map[T any](a T) T { return a }
"""
    assert shown("a.go", text) == [
        "type Tree 3-6",
        "type A 9",
        "type B 10-11",
        "method Tree.Get 16-20",
        "function Map 24",
    ]


def test_rust() -> None:
    """Attributes, doc comments, impl blocks of a type and of a trait, traits, modules, macros."""
    text = """//! crate

/// A point.
#[derive(Debug)]
pub struct Point<T> {
    x: T,
}
impl<T> Point<T> {
    const N: i32 = 1;
    /// m
    #[inline]
    pub fn norm(&self) -> T
    where
        T: Copy,
    {
        self.x
    }
}
impl<T> std::fmt::Display for Point<T> {
    fn fmt(&self) {}
}
pub trait Shape {
    fn area(&self) -> f64;
}
mod tests {
    #[test] fn works() {}
}
macro_rules! m { () => {} }
"""
    assert shown("a.rs", text) == [
        "type Point 3-7",
        "class impl Point 8-18",
        "method Point.norm 10-17",
        "class impl Display for Point 19-21",
        "method Point.fmt 20",
        "class Shape 22-24",
        "method Shape.area 23",
        "function tests.works 26",
        "function m 28",
    ]
    norm = find_unit(units_of("a.rs", text), "norm")
    assert norm.opening.endswith("    {\n")


def test_c() -> None:
    """Return types on their own line, function pointers, typedefs, code under #ifdef."""
    text = """#include <x.h>
struct forward;
typedef struct node {
    int a;
} node_t;
/* Runs. */
static int
run(int argc, char **argv)
{
    return 0;
}
int (*pick(int a))(int) { return 0; }
#ifdef X
int only(void) { return 1; }
#endif
int declared(int);
"""
    assert shown("a.c", text) == [
        "type node_t 3-5",
        "function run 6-11",
        "function pick 12",
        "function only 14",
    ]
    node, run, *_ = units_of("a.c", text)
    assert node.opening == "typedef struct node {\n"
    assert run.opening.endswith("{\n")
    assert run.signature == "static int run(int argc, char **argv)"


def test_cpp() -> None:
    """Namespaces, templates, operators, destructors and methods defined outside of their class."""
    text = """namespace a::b {
// Doc.
template <typename T>
class Foo : public Bar {
 public:
  Foo();
  ~Foo() { x(); }
  bool operator==(const Foo& o) const {
    return true;
  }
};
}  // namespace
template <class T>
int a::Foo<T>::bar(int x) const {
  return 1;
}
enum class E { A };
using X = int;
"""
    assert shown("a.cpp", text) == [
        "class a.b.Foo 2-11",
        "method a.b.Foo.~Foo 7",
        "method a.b.Foo.operator== 8-10",
        "method a.Foo.bar 13-16",
        "type E 17",
        "type X 18",
    ]
    assert find_unit(units_of("a.cpp", text), "Foo::bar").first_line == 13


def test_java() -> None:
    """Javadoc, annotations, inner classes, constructors, enums and records."""
    text = """package x;
/** Doc. */
@Entity(name = "a")
public class Box<T> {
  private int x;
  /** Gets. */
  @Override
  public <R> R get(int a) throws E {
    return null;
  }
  Box() {
  }
  static class Inner {
    void i() {}
  }
  enum Kind {
    A;
    void l() {}
  }
}
record Pair(int a) {}
"""
    assert shown("Box.java", text) == [
        "class Box 2-20",
        "method Box.get 6-10",
        "method Box.Box 11-12",
        "class Box.Inner 13-15",
        "method Box.Inner.i 14",
        "class Box.Kind 16-19",
        "method Box.Kind.l 18",
        "record Pair 21".replace("record", "class"),
    ]
    assert find_unit(units_of("Box.java", text), "get").signature == "public <R> R get(int a) throws E"


def test_bash() -> None:
    """Both ways to write a function, with the comment above but not the interpreter line."""
    text = "#!/bin/bash\nrun() {\n  x\n}\n# doc\nfunction stop {\n  y\n}\nif z; then\n  in_if() { :; }\nfi\n"
    assert shown("a.sh", text) == ["function run 2-4", "function stop 5-8", "function in_if 10"]


def test_units_that_share_a_line_are_left_out() -> None:
    """Of two functions on one line neither can be replaced alone, so neither is offered."""
    assert shown("a.js", "function a() {} function b() {}\nfunction c() {}\n") == ["function c 2"]


def test_file_with_syntax_errors_still_has_units() -> None:
    """Functions around a broken line are found."""
    text = "def a():\n    return 1\n\nx = = 2 )\n\ndef c():\n    return 3\n"
    assert {"a", "c"} <= {unit.name for unit in units_of("a.py", text)}


def test_crlf_and_tabs() -> None:
    """Line ends do not matter for what is found; the opening has plain newlines."""
    (unit, method) = units_of("a.py", "class A:\r\n\tdef m(self):\r\n\t\tpass\r\n")
    assert method.indent == "\t"
    assert unit.opening == "class A:\n"


@pytest.mark.parametrize("name", ["a.py", "a.ts", "a.go", "a.rs", "a.cpp", "a.java", "a.sh"])
def test_absurd_nesting_is_survived(name: str) -> None:
    """Thousands of open brackets and namespaces give an answer, not a crash."""
    for piece in ("namespace a { ", "mod a { ", "if x:\n ", "((((", "class A { "):
        assert len(units_of(name, piece * 3000)) <= 3000


@given(st.sampled_from(LANGUAGES), st.text(alphabet="def class{}()=>:;\n \t#/*fnimpl@x", max_size=60))
def test_units_are_prefixes_of_their_lines(language: object, text: str) -> None:
    """For any text at all, units are ordered and each one's opening begins its own lines."""
    name = f"a{language.suffixes[0]}"  # type: ignore[attr-defined]
    source = source_of(name, text)
    for unit in units_of(name, text):
        assert 1 <= unit.first_line <= unit.last_line <= len(source.lines)
        assert source.text_of(unit.first_line, unit.last_line).startswith(unit.opening)


def test_simple_name_is_enough_when_unique() -> None:
    """`go` finds Täsk.Inner.go, and so do `Inner.go` and the full name."""
    units = units_of("a.py", PYTHON)
    assert {find_unit(units, name).first_line for name in ("go", "Inner.go", "Täsk.Inner.go", "go()")} == {22}


def test_ambiguous_name_lists_the_places() -> None:
    """A name that several units share is refused with all of them and their lines."""
    units = units_of(
        "a.py", "class A:\n    def m(self):\n        pass\nclass B:\n    def m(self):\n        pass\n"
    )
    with pytest.raises(UnitNotFound) as error:
        find_unit(units, "m")
    assert "A.m (lines 2-3)" in error.value.message
    assert "B.m (lines 5-6)" in error.value.message


def test_unknown_name_suggests_the_nearest() -> None:
    """A misspelt name, also in case, is answered with the one that was meant."""
    with pytest.raises(UnitNotFound) as error:
        find_unit(units_of("a.py", PYTHON), "TÄSK.DOEN")
    assert "Täsk.done" in error.value.hint


def test_lines_must_be_in_the_file() -> None:
    """A range beyond the end is refused and the length is said."""
    source = source_of("a.txt", "a\n  b\n")
    assert lines_unit(source, 2, 2).indent == "  "
    with pytest.raises(UnitNotFound, match="2 lines"):
        lines_unit(source, 2, 3)


def test_plain_text_has_lines_and_the_file() -> None:
    """Without a grammar the whole file and line ranges remain."""
    source = source_of("notes.txt", "a\nb\n")
    assert list_units(source, language_for(source.path)) == []
    assert (file_unit(source).first_line, file_unit(source).last_line) == (1, 2)
    assert file_unit(source_of("empty.txt", "")).last_line == 0


def test_new_unit_is_an_insertion() -> None:
    """Something new stands below the unit named, at its indentation, and has no lines yet."""
    done = find_unit(units_of("a.py", PYTHON), "done")
    new = new_unit_after(done)
    assert (new.first_line, new.last_line, new.indent, new.parent) == (20, 19, "    ", "Täsk")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("run", "#!/usr/bin/env python3\n", "python"),
        ("run", "#!/usr/bin/env -S python3.11 -u\n", "python"),
        ("run", "#!/bin/sh\n", "bash"),
        ("run", "no shebang\n", "text"),
        ("a.h", "int f(void);\n", "c"),
        ("a.h", "namespace a {}\n", "cpp"),
        ("a.TSX", "", "tsx"),
        ("a.md", "#!/bin/sh\n", "md"),
    ],
)
def test_language_of_a_file(tmp_path: Path, name: str, content: str, expected: str) -> None:
    """Suffix first; scripts by their interpreter, headers by their content."""
    (tmp_path / name).write_text(content)
    assert fence_tag_for(tmp_path / name) == expected

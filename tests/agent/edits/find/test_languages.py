"""The units of a file, language by language, and the language of a file."""

from pathlib import Path

import pytest

from tests.agent.edits.find.outlines import PYTHON, shown, units_of
from vivace.agent.edits.find.languages import fence_tag_for
from vivace.agent.edits.find.units import find_unit


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

"""What is seen when candidates are called in the sandbox."""

import ast
import asyncio
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.edits.check import trial_program
from vivace.agent.edits.check.examples import Example
from vivace.agent.edits.check.trial import Trials, try_out

needs_sandbox = pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")


def tried(old: str, *codes: str, examples: tuple[Example, ...] = (), function: str = "f") -> Trials:
    trials = asyncio.run(try_out(old, codes, examples, [function]))
    assert trials is not None
    return trials


def differs(old: str, new: str) -> bool:
    trials = tried(old, new)
    assert trials.calls > 5
    return trials.each[0].differing > 0


@needs_sandbox
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def f(x: int) -> int:\n    return x + 1\n", "def f(x: int) -> int:\n    y = x\n    return 1 + y\n"),
        ("def f(xs):\n    return [x for x in xs]\n", "def f(xs):\n    return list(xs)\n"),
        ("def f(a, b):\n    return a * b\n", "def f(a, b):\n    return b * a\n"),
        ("def f(s: str):\n    print(s)\n", "def f(s: str):\n    print(f'{s}')\n"),
        ("def f(x: int):\n    yield x\n", "def f(x: int):\n    yield from [x]\n"),
    ],
)
def test_the_same_in_other_words_does_not_differ(old: str, new: str) -> None:
    """Code that was only rearranged gives the same results, whatever kinds of arguments it takes."""
    assert not differs(old, new)


@needs_sandbox
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def f(x: int) -> bool:\n    return x > 2\n", "def f(x: int) -> bool:\n    return x >= 2\n"),
        ("def f(xs):\n    return max(xs)\n", "def f(xs):\n    return max(xs, default=None)\n"),
        ("def f(s):\n    return s.upper()\n", "def f(s):\n    return s.upper().strip()\n"),
        ("def f(xs: list[int]):\n    xs.sort()\n", "def f(xs: list[int]):\n    xs.reverse()\n"),
        ("def f(s: str):\n    print(s)\n", "def f(s: str):\n    print(s, s)\n"),
        ("def f(n: int):\n    return n\n", "def f(n: int):\n    while n == 7:\n        pass\n    return n\n"),
        ("def f(n: int):\n    return n\n", "import os\nos._exit(0)\n"),
        (
            "def f(s: str, ch: str):\n    return s.replace(ch, '')\n",
            "def f(s, ch):\n    return s.replace(ch, '', 1)\n",
        ),
        ("def f(arr, n):\n    return arr[n - 1]\n", "def f(arr, n):\n    return arr[n - 1] + 1\n"),
        ("def f(a, b, c, d):\n    return a + b > c + d\n", "def f(a, b, c, d):\n    return a + b >= c + d\n"),
        (
            "def f(pairs):\n    return [a for a, b in pairs]\n",
            "def f(pairs):\n    return [b for a, b in pairs]\n",
        ),
    ],
)
def test_other_results_differ(old: str, new: str) -> None:
    """Another value, another error, other arguments afterwards, other output, or no end: it differs."""
    assert differs(old, new)


@needs_sandbox
@pytest.mark.parametrize(
    "old",
    [
        "import random\ndef f(x: int):\n    return random.random()\n",
        "def f():\n    return 1\n",
        "def f(x: int, *, y):\n    return x\n",
        "async def f(x):\n    return x\n",
        "import nothing_of_that_name\ndef f(x: int):\n    return x\n",
        "class A:\n    pass\n",
    ],
)
def test_what_cannot_be_compared_says_nothing(old: str) -> None:
    """Chance, and functions that cannot be called or loaded, count for nobody."""
    assert tried(old, old.replace("return", "return -1 or")).calls == 0


@needs_sandbox
def test_examples_tell_what_came() -> None:
    """Each example has its result, or its error, and whether that is what it says."""
    examples = (
        Example("f(2)", "4"),
        Example("f(0.1)", "0.2"),
        Example("f([1])", "[1, 1]"),
        Example("f()", "1"),
    )
    double, broken = tried("", "def f(x):\n    print('!')\n    return x * 2\n", "(", examples=examples).each
    assert double.came[:3] == ("4", "0.2", "[1, 1]")
    assert double.came[3].startswith("TypeError: f() missing")
    assert double.held == (True, True, True, False)
    assert broken.held == (False,) * 4


@needs_sandbox
def test_a_candidate_is_known_by_how_many_examples_hold() -> None:
    """One count for each candidate, and none that fails, hangs or ends the process takes others along."""
    examples = [Example("double(2)", "4"), Example("double(0.1)", "0.2"), Example("double([1])", "[1, 1]")]
    codes = [
        "def double(x):\n    return x * 2\n",
        "def double(x):\n    return 4\n",
        "def double(x):\n    return [][1]\n",
        "def double(x):\n    while True:\n        pass\n",
        "import os\nos._exit(3)\n",
        "print('noise')\ndef double(x):\n    print(x)\n    return x + x\n",
        "def double(:\n",
    ]
    trials = tried("", *codes, examples=tuple(examples))
    assert [sum(each.held) for each in trials.each] == [3, 1, 0, 0, 0, 3, 0]


@needs_sandbox
def test_code_that_writes_where_we_read_is_not_believed() -> None:
    """What a candidate prints to its descriptors does not become the report."""
    shout = (
        "import os\nfor fd in range(3, 40):\n    try:\n        os.write(fd, b'[]]\\n[1, 2]\\n')\n"
        "    except OSError:\n        pass\ndef f(x):\n    return x\n"
    )
    old = "def f(x: int):\n    return x\n"
    loud, plain = tried(old, shout, old).each
    assert loud.differing > 0
    assert plain.differing == 0


@needs_sandbox
def test_examples_are_run_where_the_old_code_does_not_parse() -> None:
    """A file with a mistake in it gets no made-up calls, and its examples all the same."""
    example = (Example("f(1)", "1"),)
    trials = tried("def f(x: return\n", "def f(x):\n    return x\n", examples=example)
    assert trials.each[0].held == (True,)
    assert trials.calls == 0


def test_nothing_is_run_without_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without bubblewrap there is no trial."""
    monkeypatch.setenv("PATH", "/nonexistent")
    assert asyncio.run(try_out("def f(x): pass\n", ["def f(x): pass\n"], [], ["f"])) is None


@given(st.sampled_from(trial_program.KINDS), st.text(max_size=20))
def test_made_up_calls_are_expressions(kind: str, constant: str) -> None:
    """Whatever constants the code has, a call of every kind can be written down and read back."""
    maker = trial_program.Maker(f"x = {constant!r}\n")
    call = ast.parse(maker.call("f", (kind, "int")), mode="eval").body
    assert isinstance(call, ast.Call)
    assert len([ast.literal_eval(each) for each in call.args]) == 2


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        ("int", "int"),
        ("str | None", "str"),
        ("Optional[List[str]]", "list[str]"),
        ("typing.Sequence[float]", "list[float]"),
        ("list[Foo]", "list[int]"),
        ("Tuple[str, int]", "tuple[str]"),
        ("Dict[str, int]", "dict"),
        ("Path", ""),
    ],
)
def test_annotations_name_kinds(annotation: str, kind: str) -> None:
    """What an annotation says is made; what cannot be made is found by trying."""
    assert trial_program.annotated_kind(ast.parse(annotation, mode="eval").body) == kind

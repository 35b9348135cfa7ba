"""Calls as tags, as Qwen3-Coder writes them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.families import tokenizers
from tests.models.families.reading import GET, SPEC, brief, read
from vivace.models.families.base import Call, CallArguments, CallStart
from vivace.models.families.qwen3coder import Qwen3Coder

CHATML = tokenizers.chatml()
CODER = Qwen3Coder(CHATML)


def said(text: str) -> list[tuple[str, ...] | str]:
    """What becomes of an answer, whole and letter by letter alike."""
    whole = brief(read(CODER.parser(SPEC, []), text))
    assert brief(read(CODER.parser(SPEC, []), *text)) == whole
    return whole


def call(*parameters: tuple[str, str], name: str = "get") -> str:
    lines = [f"<parameter={key}>\n{value}\n</parameter>" for key, value in parameters]
    return "\n".join(["<tool_call>", f"<function={name}>", *lines, "</function>", "</tool_call>"])


def test_parameters_become_json() -> None:
    """Each value has the type that the schema names, or looks like where it names none."""
    text = call(
        ("city", 'a "b"\n c'),
        ("n", "5"),
        ("kind", "7"),
        ("any", "[1, {}]"),
        ("maybe", "None"),
        ("new", "True"),
    )
    ((name, arguments),) = said(f"I look.\n\n{text}")[1:]
    assert name == "get"
    assert json.loads(arguments) == {
        "city": 'a "b"\n c', "n": 5, "kind": "7", "any": [1, {}], "maybe": None, "new": True
    }  # fmt: skip
    assert said(f"I look.\n\n{text}")[0] == "I look."


def test_a_value_that_does_not_fit_its_type_is_a_string() -> None:
    """What is no JSON stays what it is."""
    ((_, arguments),) = said(call(("n", "five"), ("any", "a: b"), ("maybe", "")))
    assert json.loads(arguments) == {"n": "five", "any": "a: b", "maybe": ""}


def test_a_string_streams_as_it_is_written() -> None:
    """The value of a string parameter does not wait for its end."""
    parser = CODER.parser(SPEC, [])
    assert parser.feed("<tool_call>\n<function=get>\n") == [CallStart(GET), CallArguments("{")]
    assert parser.feed("<parameter=city>\n") == [CallArguments('"city": "')]
    assert parser.feed('Os"lo\n') == [CallArguments('Os\\"lo')]
    assert parser.feed("x") == [CallArguments("\\nx")]


def test_an_end_tag_inside_a_value_is_part_of_it() -> None:
    """Only a `</parameter>` behind which the call goes on ends the value."""
    ((_, arguments),) = said(call(("city", "a </parameter> b\n</parameter>\nc")))
    assert json.loads(arguments) == {"city": "a </parameter> b\n</parameter>\nc"}


def test_a_custom_tool_gets_its_text_as_it_is() -> None:
    """No escapes in between: `input` is the text."""
    text = '*** Begin\n+ "a\\n" <b>\n*** End'
    assert said(call(("input", text), name="patch")) == [("patch", text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<function=now></function>", [("now", "{}")]),
        ("So\n<function=now>\n</function>\nDone", ["So", ("now", "{}"), "Done"]),
        ("<tool_call>\n<function=now>\n</tool_call>", [("now", "{}")]),
        (f"{call(name='now')}\n{call(name='now')}", [("now", "{}"), ("now", "{}")]),
    ],
)
def test_tags_may_be_missing(text: str, expected: list[tuple[str, ...] | str]) -> None:
    """`<tool_call>` or `</function>` are sometimes forgotten."""
    assert said(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<function=other>\n</function>", ["<function=other>\n</function>"]),
        ("<tool_call>\nno", ["<tool_call>\nno"]),
        ("<function=" + "x" * 300, ["<function=" + "x" * 300]),
        ("a <fun", ["a <fun"]),
        ("<function=get>\n<parameter=city>\nOs", [("broke", "<function=get>\n<parameter=city>\nOs")]),
        ("<function=get>\n<par", [("broke", "<function=get>\n<par")]),
        ("<function=get>\n<par!", [("broke", "<function=get>\n"), "<par!"]),
        ("<function=patch></function>", [("broke", "<function=patch></function>")]),
    ],
)
def test_what_is_no_call_is_not_lost(text: str, expected: list[tuple[str, ...] | str]) -> None:
    """An unknown name is text; what breaks off or is malformed comes back as it was written."""
    assert said(text) == expected


NAMES = st.sampled_from(["city", "any", "x"])
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=12)
    | st.lists(st.text(max_size=3), max_size=2)
)


@given(st.dictionaries(NAMES, VALUES))
def test_what_is_written_for_a_call_is_read_as_that_call(arguments: dict[str, object]) -> None:
    """History as the family writes it and calls as it reads them are the same format."""
    arguments = {key: value if key != "city" else str(value) for key, value in arguments.items()}
    pieces = CODER.call(Call("get", json.dumps(arguments)), behind="")
    found = said("".join(pieces))
    text = json.loads(found[0][1])
    assert text.keys() == arguments.keys()
    for key, value in arguments.items():
        is_typed = key == "city" or not isinstance(value, str)
        assert text[key] == value if is_typed else str(text[key]).strip() in (value.strip(), *_read_as(value))  # type: ignore[arg-type, attr-defined]


def _read_as(value: str) -> list[str]:
    """A string where the schema names no type may look like something else."""
    try:
        return [str(json.loads(value.strip()))]
    except ValueError:
        return [value.strip()]

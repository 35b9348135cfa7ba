"""The length that two lists of tokens have in common."""

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.thorough import examples
from vivace.engine.common_length import common_length

LENGTHS = st.integers(0, 40) | st.integers(1000, 1050) | st.integers(2040, 2060)


@settings(max_examples=examples(200))
@given(
    one=LENGTHS,
    other=LENGTHS,
    differs=st.integers(0, 2100),
    kind=st.sampled_from([list, lambda x: array("i", x)]),
)
def test_common_length_is_that_of_a_plain_loop(one: int, other: int, differs: int, kind: type) -> None:
    """The fast comparison finds the same length as one token at a time."""
    first, second = list(range(one)), list(range(other))
    if differs < other:
        second[differs] = -1
    naive = 0
    while naive < min(one, other) and first[naive] == second[naive]:
        naive += 1
    assert common_length(kind(first), kind(second)) == naive
    assert common_length(kind(second), kind(first)) == naive

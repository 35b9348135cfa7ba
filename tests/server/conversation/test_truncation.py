"""What a conversation loses when it is too long."""

from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.shapes.items import CALLS, OUTPUTS, InputItem
from vivace.server.conversation.truncation import room_for_prompt, shortened

ITEMS = st.lists(
    st.one_of(
        st.builds(InputItem, role=st.sampled_from(["system", "user", "assistant"]), content=st.text()),
        st.builds(
            InputItem,
            type=st.sampled_from([*CALLS, *OUTPUTS]),
            call_id=st.sampled_from("abc"),
            input=st.text(),
        ),
    )
)


def size(items: list[InputItem]) -> int:
    return sum(len(item.text) + len(item.input or "") + 1 for item in items)


@given(ITEMS, st.integers(0, 200))
def test_what_stays_is_in_order_and_fits_if_it_can(items: list[InputItem], room: int) -> None:
    """The instructions and the last question stay; the rest goes, oldest first, and no more than needed."""
    kept = shortened(items, size, room)
    positions = [next(i for i, item in enumerate(items) if item is each) for each in kept]
    assert positions == sorted(positions)
    users = [item for item in items if item.role == "user"]
    must_stay = [item for item in items if item.role == "system"] + users[-1:]
    assert all(any(item is each for each in kept) for item in must_stay)
    if size(items) <= room:
        assert kept == items
    elif size(kept) > room:
        assert {id(item) for item in kept} <= {id(item) for item in must_stay}


@given(ITEMS, st.integers(0, 200))
def test_no_output_stays_whose_call_went(items: list[InputItem], room: int) -> None:
    """An output without its call would confuse the model; one whose call was never there is left alone."""
    kept = shortened(items, size, room)
    calls = {item.call_id for item in items if item.type in CALLS}
    kept_calls = {item.call_id for item in kept if item.type in CALLS}
    for item in kept:
        if item.type in OUTPUTS and item.call_id in calls:
            assert item.call_id in kept_calls


def test_there_is_always_room_for_an_answer() -> None:
    """What was asked for, but at most half of the context, and never nothing."""
    assert room_for_prompt(8192, 1000) == 7192
    assert room_for_prompt(8192, 100_000) == 4096
    assert room_for_prompt(8192, None) == 6144
    assert room_for_prompt(100, 10) == 1

"""Which kind of pass a span takes, by what passes cost."""

from vivace.engine.runners.cuda.pass_choice import NEVER, OWN_READING, SHARED_READING, choose_passes

FEW = {1: 2.0, 2: 2.2, 4: 2.4, 8: 2.9, 16: 4.5, 32: 7.9}


def test_a_prompt_is_prefilled_from_where_that_is_quicker() -> None:
    """And a prefill looks no cheaper than the largest decode pass."""
    choice, costs = choose_passes(FEW, {64: 4.0, 512: 9.0}, {})
    assert choice.most_decoded == 8
    assert choice.rows_from == NEVER
    assert costs == FEW | {64: 7.9, 512: 9.0}


def test_a_draft_is_rows_from_where_that_is_quicker() -> None:
    """Nine tokens would be padded to 16, which take longer than 32 rows; but not in a long context."""
    choice, costs = choose_passes(FEW, {}, {32: 3.0})
    assert choice.rows_from == 9
    assert costs[32] == 3.0
    assert choice.are_rows_quicker(0, 9)
    assert not choice.are_rows_quicker(0, 8)
    assert not choice.are_rows_quicker(OWN_READING.context + 1, 32)


def test_rows_that_save_little_are_not_taken() -> None:
    choice, costs = choose_passes(FEW, {}, {32: 6.0})
    assert choice.rows_from == NEVER
    assert costs == FEW


def test_rows_that_share_what_they_read_may_save_less() -> None:
    """And do so in a longer context."""
    choice, costs = choose_passes(FEW, {}, {32: 7.0}, SHARED_READING)
    assert choice.rows_from == 17
    assert costs == FEW | {32: 7.0}
    assert choice.are_rows_quicker(OWN_READING.context + 1, 32)
    assert not choice.are_rows_quicker(SHARED_READING.context + 1, 32)


def test_a_draft_that_no_decode_pass_has_room_for_is_rows() -> None:
    """What is shorter stays where it is quicker."""
    choice, costs = choose_passes(FEW, {64: 7.0}, {32: 6.0, 64: 8.1})
    assert choice.rows_from == 33
    assert costs == FEW | {64: 8.1}


def test_all_wide_passes_are_taken_from_the_first_that_is_quicker() -> None:
    choice, costs = choose_passes(FEW, {}, {32: 3.0, 64: 4.0})
    assert choice.rows_from == 9
    assert costs == FEW | {32: 3.0, 64: 4.0}


def test_rows_are_all_that_a_long_draft_has() -> None:
    """Of a model whose decode passes end at 8 tokens; up to there they are quicker."""
    choice, costs = choose_passes({1: 3.8, 8: 7.6}, {}, {32: 9.0})
    assert choice.rows_from == 9
    assert costs == {1: 3.8, 8: 7.6, 32: 9.0}

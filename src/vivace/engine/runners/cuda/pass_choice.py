"""Which kind of pass a span takes on the GPU, by what passes cost.

A few tokens go through decode passes, many through a prefill; a long draft may be rows of a wide pass, which
reads the weights once for all of them. Owns this choice. Does not measure and does not run passes (`runner`).
"""

from typing import NamedTuple

NEVER = 1 << 30

Costs = dict[int, float]  # milliseconds by tokens


class RowKind(NamedTuple):
    """When rows are worth it: `share` of a decode pass's time at most, and up to so much context."""

    share: float
    context: int


OWN_READING = RowKind(0.7, 4096)  # every row reads all of its context, which costs part of what rows save
SHARED_READING = RowKind(0.9, 10_240)


class PassChoice(NamedTuple):
    most_decoded: int  # tokens of a prompt that are not worth a prefill
    rows_from: int = NEVER  # tokens from which on a draft is verified as rows
    kind: RowKind = OWN_READING

    def are_rows_quicker(self, start: int, tokens: int) -> bool:
        return tokens >= self.rows_from and start <= self.kind.context


def choose_passes(
    few: Costs, many: Costs, rows: Costs, kind: RowKind = OWN_READING
) -> tuple[PassChoice, Costs]:
    """Return the choice, and what spans cost then.

    `few` are decode passes, `many` prefills, `rows` the wide passes that there are. A prefill never looks
    cheaper than a decode pass: it gives no row of logits for each token.
    """
    most_few = max(few)
    most = most_few
    if many:  # it may be quicker than a pass over a few of its tokens
        most = max(size for size in few if size == 1 or few[size] <= many[min(many)])
    costs = few | {size: max(ms, few[most_few]) for size, ms in many.items()}
    rows_from = NEVER
    for wide, ms in sorted(rows.items()):
        slower = [size for size in few if ms < kind.share * few[size]]
        if rows_from == NEVER and (slower or wide > most_few):
            rows_from = max(size for size in few if size < min(slower, default=wide)) + 1
        if rows_from != NEVER:
            costs[wide] = ms
    return PassChoice(most, rows_from, kind), costs

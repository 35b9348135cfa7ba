"""Tokens of a pass that share experts: what each gets is what it gets alone, to the bit."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from tests.engine.runners.cuda.bed import NAN  # noqa: E402
from tests.engine.runners.cuda.emulator import COMPILER  # noqa: E402
from tests.engine.runners.cuda.expert_bed import ExpertBed, some_x  # noqa: E402
from tests.engine.runners.cuda.test_experts import EIGHT, FOUR  # noqa: E402
from vivace.engine.runners.cuda.decode.expert_groups import (  # noqa: E402
    LIST_WORDS,
    group_plan,
    is_for_groups,
    most_groups,
)
from vivace.engine.runners.cuda.decode.plan import Plan  # noqa: E402
from vivace.engine.runners.cuda.model import mixture  # noqa: E402
from vivace.engine.runners.cuda.model.shape import Shape  # noqa: E402

pytestmark = pytest.mark.skipif(
    not COMPILER and not torch.cuda.is_available(), reason="neither an NVIDIA GPU nor a C++ compiler"
)
HEAVY = pytest.mark.thorough


@pytest.mark.parametrize(
    ("shape", "bits", "size"),
    [
        pytest.param(FOUR, 8, 2, id="8 bits, two"),
        pytest.param(EIGHT, 4, 4, id="4 bits, four"),
        pytest.param(EIGHT, 4, 2, id="4 bits, two", marks=HEAVY),
        pytest.param(FOUR, 8, 8, id="8 bits, eight", marks=HEAVY),
        pytest.param(FOUR, 16, 4, id="bf16, four", marks=HEAVY),
    ],
)
def test_in_groups_as_alone(shape: Shape, bits: int, size: int, seed: int) -> None:
    """More tokens of one expert than a group has, fewer, and padding."""
    bed, x = ExpertBed(shape, bits, seed), some_x(shape, 11, seed)
    x[3] = x[0] * 1.5  # the same experts, as a token that is repeated
    x[7:10] = x[1]
    alone = torch.cat([bed.run(x[i : i + 1], 1) for i in range(len(x))])
    for tokens in (16, 32):
        assert torch.equal(bed.run(x, tokens, expert_group=size), alone)
    assert torch.equal(bed.run(x[[7, 0]], 2, expert_group=size), alone[[7, 0]])


def test_a_pass_as_large_as_its_groups_has_kernels_of_its_own(seed: int) -> None:
    """Its module is not the groups', though both are compiled for as many tokens."""
    plan = Plan(FOUR, 8, 4)
    plan = replace(plan, tuning=replace(plan.tuned, expert_group=4))
    assert is_for_groups(group_plan(plan))
    assert not is_for_groups(plan)
    bed, x = ExpertBed(FOUR, 8, seed), some_x(FOUR, 4, seed)
    alone = torch.cat([bed.run(x[i : i + 1], 1) for i in range(4)])
    assert torch.equal(bed.run(x, 4, expert_group=4), alone)


def groups_of(bed: ExpertBed, size: int) -> list[tuple[int, list[int]]]:
    """The list that the device made: (expert, places)."""
    assert bed.routed
    words = bed.routed.groups.tolist()
    entries = [words[LIST_WORDS + n * (2 + size) :][: 2 + size] for n in range(words[0])]
    return [(expert, places[:count]) for expert, count, *places in entries]


def test_the_list_has_every_choice_once(seed: int) -> None:
    """In as few groups as their size allows, each of one expert."""
    bed, x, size = ExpertBed(FOUR, 8, seed), some_x(FOUR, 13, seed), 2
    bed.run(x, 16, expert_group=size)
    chosen = mixture.choose_experts(bed.scores[:13].cpu(), FOUR.experts_per_token)[0].flatten().tolist()
    groups = groups_of(bed, size)
    assert sorted(place for _, places in groups for place in places) == list(range(len(chosen)))
    assert all(chosen[place] == expert for expert, places in groups for place in places)
    assert len(groups) == sum(-(-chosen.count(expert) // size) for expert in set(chosen))


def test_a_row_that_holds_anything_harms_nobody(seed: int) -> None:
    """Scores that are no numbers choose the first expert, as often as a token chooses."""
    bed, x = ExpertBed(FOUR, 8, seed), some_x(FOUR, 3, seed)
    alone = bed.run(x[:1], 1)
    x[1] = NAN
    assert torch.equal(bed.run(x, 4, expert_group=2)[:1], alone)


@pytest.mark.parametrize("tokens", [1, 2, 5, 16, 64])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_there_are_no_more_groups_than_the_grid_is_made_for(tokens: int, size: int) -> None:
    """The worst case: as many experts as can be have one token more than whole groups."""
    plan = group_plan(Plan(FOUR, 8, 16, tuning=replace(Plan(FOUR, 8, 16).tuned, expert_group=size)))
    left, groups = tokens * FOUR.experts_per_token, 0
    for _ in range(FOUR.experts):  # a token can choose an expert once; a row that holds anything, more often
        groups, left = groups + (left > 0), max(0, left - 1)
    groups += -(-left // size) if left else 0
    assert groups <= most_groups(plan, tokens)

"""Examples in one row behind one prefix compute what they would alone, and only answers are learnt."""

import random

import pytest

torch = pytest.importorskip("torch")

from tests.training.bed import repeating, tiny_decoder  # noqa: E402
from tests.training.test_decoder import logits_of, moved_adapter  # noqa: E402
from vivace.training.loss import measure  # noqa: E402
from vivace.training.packing import PADDING, PREFIX, attention_mask, collate, pack  # noqa: E402


def test_each_example_lies_in_one_row_and_no_row_is_too_long() -> None:
    """Packing loses nothing that fits, and leaves out what does not."""
    chance = random.Random(4)
    lengths = [chance.randrange(1, 60) for _ in range(300)]
    rows = pack(lengths, 50, random.Random(1))
    assert sorted(index for row in rows for index in row) == [
        index for index, length in enumerate(lengths) if length <= 50
    ]
    assert all(sum(lengths[index] for index in row) <= 50 for row in rows)
    assert sum(map(len, rows)) / len(rows) > 1.5


def test_the_same_seed_packs_alike() -> None:
    """The order depends on the seed and on nothing else."""
    lengths = list(range(1, 40))
    assert pack(lengths, 50, random.Random(7)) == pack(lengths, 50, random.Random(7))
    assert pack(lengths, 50, random.Random(7)) != pack(lengths, 50, random.Random(8))


def test_a_token_sees_the_prefix_and_its_own_example_alone() -> None:
    """Nothing else: no other example, no later token, no padding."""
    segments = torch.tensor([[PREFIX, PREFIX, 1, 1, 2, 2, PADDING]])
    seen = attention_mask(segments)[0, 0].int().tolist()
    assert seen == [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 0, 0, 1, 0, 0],
        [1, 1, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 1],
    ]


def test_targets_are_the_answers_and_nothing_else() -> None:
    """Of each example every token of the answer is a target, and none of the prompt."""
    examples = repeating(5)
    batch = collate(examples.prefix, examples.rows, [[0, 3], [1], [4, 2]])
    for index, row in enumerate(examples.rows):
        assert tuple(batch.targets[batch.owners == index].tolist()) == row.answer
    assert len(batch.targets) == sum(len(row.answer) for row in examples.rows)
    for (line, column), target in zip(batch.places.tolist(), batch.targets.tolist(), strict=True):
        assert int(batch.tokens[line, column + 1]) == target


def test_rows_are_whole_tiles_of_the_gpus_attention() -> None:
    """The width is a multiple of 128, also where the longest row or the caller asks for 64 more."""
    examples = repeating(40)
    for count in range(1, 41):
        assert collate(examples.prefix, examples.rows, [list(range(count))]).tokens.shape[1] % 128 == 0
    assert collate(examples.prefix, examples.rows, [[0]], width=192).tokens.shape == (1, 256)


@pytest.mark.parametrize("with_adapter", [False, True])
def test_packed_examples_lose_what_they_lose_alone(with_adapter: bool) -> None:
    """The loss of each answer's token equals that of the example by itself."""
    decoder, adapter = tiny_decoder(), moved_adapter() if with_adapter else None
    examples = repeating(6)
    batch = collate(examples.prefix, examples.rows, [[0, 1, 2], [3, 4, 5]])
    nats, _ = measure(decoder, adapter, batch)
    for index, row in enumerate(examples.rows):
        tokens = [*examples.prefix, *row.prompt, *row.answer]
        logs = logits_of(decoder, tokens, adapter).log_softmax(-1)
        first = len(tokens) - len(row.answer)
        alone = torch.stack([-logs[at - 1, tokens[at]] for at in range(first, len(tokens))])
        torch.testing.assert_close(nats[batch.owners == index], alone, atol=1e-4, rtol=1e-4)

"""The decoder that is trained beside computes what the engine's reference does, in rows and step by step."""

import pytest

torch = pytest.importorskip("torch")

from tests.training.bed import END, SHAPE, repeating, tiny_decoder, tiny_weights  # noqa: E402
from vivace.engine.runners.cuda.decode.launches import rotation_table  # noqa: E402
from vivace.engine.runners.cuda.model.reference import forward  # noqa: E402
from vivace.errors import StartError  # noqa: E402
from vivace.training.adapter import Adapter, merge, new_adapter  # noqa: E402
from vivace.training.answering import write_answers  # noqa: E402
from vivace.training.decoder import Decoder  # noqa: E402


def moved_adapter(seed: int = 5) -> Adapter:
    """Return an adapter that does change something."""
    adapter = new_adapter(SHAPE, tiny_weights(), 4, 8.0, seed, "cpu")
    with torch.no_grad():
        for _, b in adapter.pairs.values():
            b.copy_(torch.randn(b.shape, generator=torch.Generator().manual_seed(seed)) * 0.1)
    return adapter


def logits_of(decoder: Decoder, tokens: list[int], adapter: Adapter | None = None) -> "torch.Tensor":  # type: ignore[name-defined]
    ids = torch.tensor([tokens])
    mask = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()[None, None]
    return decoder.logits(decoder.hidden(ids, torch.arange(len(tokens))[None], mask, adapter))[0]


TOKENS = [2, 9, 40, 7, 7, 63, 12, 30, 5]


def test_it_computes_what_the_reference_computes() -> None:
    """Logits equal those of the plain decoder that every engine is held against."""
    weights, table = tiny_weights(), rotation_table(SHAPE, 64, "cpu")
    wanted = forward(SHAPE, weights, torch.tensor(TOKENS), table)
    torch.testing.assert_close(logits_of(tiny_decoder(), TOKENS), wanted, atol=1e-4, rtol=1e-4)


def test_a_new_adapter_changes_nothing() -> None:
    """B begins at zero, so training begins at the base model."""
    adapter = new_adapter(SHAPE, tiny_weights(), 4, 8.0, 1, "cpu")
    decoder = tiny_decoder()
    assert torch.equal(logits_of(decoder, TOKENS, adapter), logits_of(decoder, TOKENS))


def test_merged_weights_compute_what_the_adapter_does() -> None:
    """Merging is exact up to rounding, and the adapter changes what is computed."""
    adapter = moved_adapter()
    beside = logits_of(tiny_decoder(), TOKENS, adapter)
    merged = Decoder(SHAPE, merge(tiny_weights(), adapter), "cpu", torch.float32)
    torch.testing.assert_close(beside, logits_of(merged, TOKENS), atol=1e-4, rtol=1e-4)
    assert (beside - logits_of(tiny_decoder(), TOKENS)).abs().max() > 0.1


@pytest.mark.parametrize("with_adapter", [False, True])
def test_answers_side_by_side_are_those_alone(with_adapter: bool) -> None:
    """Padding, the cache and other rows change no answer: each is the greedy one of its prompt."""
    decoder, adapter = tiny_decoder(), moved_adapter() if with_adapter else None
    examples = repeating(7)
    prompts = [examples.prefix + row.prompt for row in examples.rows]
    together = write_answers(decoder, adapter, prompts, {END}, 12, at_once=5)
    for prompt, answer in zip(prompts, together, strict=True):
        said: list[int] = []
        while len(said) < 12 and said[-1:] != [END]:
            said.append(int(logits_of(decoder, [*prompt, *said], adapter)[-1].argmax()))
        assert answer == said


def test_a_mixture_is_refused() -> None:
    """Only dense models can be trained, and that is said before anything is read."""
    from vivace.engine.runners.cuda.model.reference import StateDict
    from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES

    with pytest.raises(StartError, match="dense"):
        Decoder(KNOWN_SHAPES["gpt-oss-20b"], StateDict(), "cpu", torch.float32)


def test_the_same_prompt_twice_is_answered_as_once() -> None:
    """It is read once, and its rows are answered side by side with others."""
    decoder, prompts = tiny_decoder(), [(5, 6, 7), (9, 8), (5, 6, 7), (11, 12, 13, 14), (9, 8)]
    alone = {prompt: write_answers(decoder, None, [prompt], {1}, 6)[0] for prompt in set(prompts)}
    assert write_answers(decoder, None, prompts, {1}, 6) == [alone[prompt] for prompt in prompts]


def test_samples_of_one_prompt_differ_and_come_again() -> None:
    """At a temperature above 0; the same seed gives the same ones."""
    decoder, prompts = tiny_decoder(), [(5, 6, 7)] * 8
    found, again = (write_answers(decoder, None, prompts, {1}, 6, temperature=1.5, seed=4) for _ in range(2))
    assert found == again
    assert len({tuple(each) for each in found}) > 4

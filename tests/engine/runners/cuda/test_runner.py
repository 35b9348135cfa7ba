"""The runner behind the seam: plain torch's tokens, however a text is cut, forked or streamed."""

from dataclasses import replace
from functools import lru_cache

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
np = pytest.importorskip("numpy")

from tests.engine.runners.cuda.bed import distance  # noqa: E402
from tests.engine.runners.cuda.emulator import COMPILER, Emulator  # noqa: E402
from vivace.engine.output.sampler import Sampler  # noqa: E402
from vivace.engine.runners.base import KVFull, SamplingSpec, Span, Stopped  # noqa: E402
from vivace.engine.runners.cuda.decode.launches import STATE_WORDS, Model  # noqa: E402
from vivace.engine.runners.cuda.decode.tuning import TUNINGS  # noqa: E402
from vivace.engine.runners.cuda.kernels.driver import Module  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.model.reference import StateDict  # noqa: E402
from vivace.engine.runners.cuda.model.shape import Shape  # noqa: E402
from vivace.engine.runners.cuda.runner import CudaRunner  # noqa: E402
from vivace.engine.runners.cuda.weights.build import Dense, build_model, random_weights  # noqa: E402
from vivace.engine.wire.frames import Sampling  # noqa: E402

pytestmark = pytest.mark.skipif(
    not COMPILER and not torch.cuda.is_available(), reason="neither an NVIDIA GPU nor a C++ compiler"
)
SHAPE = Shape(1, 512, 1792, 4, 2, 640, 512)
BLOCKS_FOR_8_PARTS = 16  # the fewest multiprocessors with room for 8 clusters of 2 blocks for each key head


class Letters:
    end_tokens = frozenset({3})

    def token_bytes(self, token: int) -> bytes:
        return bytes([token % 256])


@lru_cache(maxsize=2)
def make_weights(bits: int, seed: int, device: str) -> tuple[StateDict, Model, list[Dense]]:
    plain = random_weights(SHAPE, seed, device)
    return (plain, *build_model(SHAPE, plain, bits, device, 512))


class Case:
    def __init__(self, bits: int, seed: int, blocks: int = 5) -> None:
        is_real = torch.cuda.is_available()
        device = "cuda" if is_real else "cpu"
        self.plain, self.model, dense = make_weights(bits, seed, device)
        self.runner = CudaRunner(
            "test", self.model, dense, Letters(), bits=bits, context_tokens=512,
            make_launcher=Module if is_real else Emulator, blocks=132 if is_real else blocks,
            prefill="bf16",
        )  # fmt: skip

    def wanted(self, tokens: list[int]) -> "torch.Tensor":  # type: ignore[name-defined]
        ids = torch.tensor(tokens, device=self.model.embedding.device)
        return reference.forward(SHAPE, self.plain, ids, self.model.rotation).cpu()


def some(count: int, seed: int) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(0, SHAPE.vocab, count)]


@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "drawn"])
@pytest.mark.parametrize("count", [1, 9, 90], ids=["a token", "a pass", "a prompt"])
@pytest.mark.parametrize("bits", [4, 8, 16])
def test_a_prompts_token_is_that_of_its_logits(bits: int, count: int, temperature: float, seed: int) -> None:
    """The device chooses behind a prompt as the host would, of any length, and the KV is the same."""
    runner, text = Case(bits, seed).runner, some(20 + count, seed)
    for seq in (0, 1):
        runner.forward([Span(seq, 0, text[:20])])
    sampler = Sampler(Sampling(temperature=temperature, seed=seed), [])
    (row,) = runner.forward([Span(0, 20, text[20:], want=1)])
    wanted = sampler.sample(row, len(text))
    assert runner.prefill(Span(1, 20, text[20:], want=1), SamplingSpec(temperature, seed)) == wanted
    after = [runner.forward([Span(seq, len(text), [5], want=1)]).copy() for seq in (0, 1)]
    assert np.array_equal(*after)


def test_a_prompt_that_is_stopped_leaves_no_page(seed: int) -> None:
    runner, text = Case(8, seed).runner, some(90, seed)
    for count in (9, 90):
        with pytest.raises(Stopped):
            runner.prefill(Span(0, 0, text[:count], want=1), SamplingSpec(), lambda: True)
    with pytest.raises(KVFull):
        runner.prefill(Span(0, 0, some(600, seed), want=1), SamplingSpec())
    runner.prefill(Span(1, 0, some(512, seed), want=1), SamplingSpec())  # all that there is


@pytest.mark.parametrize("bits", [8, 16])
def test_prefill_then_passes_then_stream(bits: int, seed: int) -> None:
    """A prompt in two chunks, a pass over three tokens and a stream agree with the text read at once."""
    case = Case(bits, seed)
    runner, text = case.runner, some(90, seed)
    assert runner.forward([Span(0, 0, text[:50])]).shape == (0, SHAPE.vocab)
    second = runner.forward([Span(0, 50, text[50:87], want=2)]).copy()
    few = runner.forward([Span(0, 87, text[87:], want=3)]).copy()
    wanted = case.wanted(text)
    assert distance(torch.tensor(second), wanted[85:87]) < 0.05
    assert distance(torch.tensor(few), wanted[87:]) < 0.05
    tokens: list[int] = []
    for _ in range(3):
        tokens += runner.decode(
            Span(0, 89 + len(tokens), [(text + tokens)[-1]]), SamplingSpec(), steps_ahead=1
        )
    again = list(text)
    for token in tokens:
        row = runner.forward([Span(1, 0, again, want=1)])[0]
        assert row[token] > row.max() - 0.2  # the prefill rounds elsewhere: near ties may fall otherwise
        again.append(token)
    assert len(tokens) == 3


@pytest.fixture
def is_soon_cut_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attention has two parts from 136 tokens on, and eight from 140."""
    soon = replace(TUNINGS[8], attention_cluster=2, attention_parts=((136, 1), (140, 2)))
    monkeypatch.setitem(TUNINGS, 8, soon)


@pytest.mark.usefixtures("is_soon_cut_anew")
def test_tokens_of_a_pass_come_out_as_alone_where_the_attention_is_cut_anew(seed: int) -> None:
    """To the bit: at a tie, a draft would change the text otherwise."""
    runner, text = Case(8, seed, blocks=BLOCKS_FOR_8_PARTS).runner, some(148, seed)
    runner.forward([Span(0, 0, text[:130])])
    runner.share(0, 1, 130)
    together = runner.forward([Span(0, 130, text[130:], want=18)]).copy()
    alone = [runner.forward([Span(1, 130 + i, [text[130 + i]], want=1)])[0].copy() for i in range(18)]
    assert np.array_equal(together, alone)


@pytest.mark.usefixtures("is_soon_cut_anew")
def test_a_draft_is_verified_with_what_its_tokens_would_have_alone(seed: int) -> None:
    """Each of its passes ends where the attention is cut anew, and its tokens are those of single steps."""
    runner, text = Case(8, seed, blocks=BLOCKS_FOR_8_PARTS).runner, some(130, seed)
    runner.forward([Span(0, 0, text)])
    runner.share(0, 1, 130)
    said = [7]
    for at in range(130, 148):
        said += runner.decode(Span(1, at, said[-1:]), SamplingSpec())
    passes: list[tuple[int, int]] = []
    run = runner._passes.run

    def noted(tokens: list[int], start: int, *rest: object, **named: object) -> object:
        passes.append((start, len(tokens)))
        return run(tokens, start, *rest, **named)  # type: ignore[arg-type]

    runner._passes.run = noted  # type: ignore[assignment]
    assert runner.decode(Span(0, 130, said[:-1]), SamplingSpec()) == said[1:]
    assert passes == [(130, 6), (136, 4), (140, 8)]


def test_a_fork_shares_pages_and_both_go_on(seed: int) -> None:
    """After a fork each side writes its own text; the other's logits do not change by a bit."""
    case = Case(8, seed)
    runner, text = case.runner, some(70, seed)
    runner.forward([Span(0, 0, text)])
    runner.share(0, 5, 66)
    before = runner.forward([Span(0, 69, text[69:], want=1)]).copy()
    runner.forward([Span(5, 66, [1, 2], want=1)])
    assert np.array_equal(runner.forward([Span(0, 69, text[69:], want=1)]), before)


def test_saved_kv_comes_back(seed: int) -> None:
    """What `save` wrote, `load` gives to another sequence: the same logits."""
    case = Case(8, seed)
    runner, text = case.runner, some(40, seed)
    runner.forward([Span(0, 0, text)])
    wanted = runner.forward([Span(0, 39, text[39:], want=1)]).copy()
    runner.load(3, runner.save(0))
    assert np.array_equal(runner.forward([Span(3, 39, text[39:], want=1)]), wanted)
    with pytest.raises(ValueError, match="no KV"):
        runner.load(4, b"123")


def test_full_and_stopped(seed: int) -> None:
    """No room raises KVFull and changes nothing; a stop in the middle raises Stopped."""
    case = Case(8, seed)
    runner = case.runner
    with pytest.raises(KVFull):
        runner.forward([Span(0, 0, some(600, seed))])
    with pytest.raises(Stopped):
        runner.forward([Span(0, 0, some(100, seed))], lambda: True)
    runner.forward([Span(0, 0, some(512, seed))])
    runner.trim(0, 0)
    runner.forward([Span(1, 0, some(512, seed))])


def test_costs_are_those_of_tokens_unlike_each_other() -> None:
    """Of a mixture each chooses its own experts; 32 times the same token would read a few."""
    pytest.importorskip("msgspec", reason="the engine's packages are not installed")
    from tests.engine.fixtures import cuda_fixture

    runner = cuda_fixture().runner
    assert isinstance(runner, CudaRunner)
    runner.known_costs()
    assert len(set(runner._passes.pass_of_size(32).inputs.words[STATE_WORDS:])) == 32
    assert len(set(runner._prefill._staged.words[STATE_WORDS : STATE_WORDS + 64])) == 64


def test_costs_rise_with_the_size_of_a_pass() -> None:
    """Every size that a draft may have is measured, and a prefill never looks cheaper than they do."""
    pytest.importorskip("msgspec", reason="the engine's packages are not installed")
    from tests.engine.fixtures import cuda_fixture

    runner = cuda_fixture().runner
    costs = runner.known_costs()
    assert {1, 2, 4, 8, 16, 32, 64} <= costs.keys()
    assert costs[64] >= costs[32] > 0
    assert runner.forward([Span(0, 0, [1] * 20, want=1)]).shape == (1, runner.info.vocab_size)

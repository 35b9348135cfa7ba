"""Rows of several sequences in one pass: what each says and writes is what it says and writes alone."""

import random
import zlib
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from tests.engine.runners.cuda.emulator import COMPILER, Emulator  # noqa: E402
from tests.engine.runners.cuda.test_runner import Letters, some  # noqa: E402
from vivace.engine.runners.base import DecodeRow, Logits, SamplingSpec, Span  # noqa: E402
from vivace.engine.runners.cuda.decode import plan, tuning  # noqa: E402
from vivace.engine.runners.cuda.decode.graphs import Launcher  # noqa: E402
from vivace.engine.runners.cuda.kernels.driver import Module  # noqa: E402
from vivace.engine.runners.cuda.model.shape import Shape  # noqa: E402
from vivace.engine.runners.cuda.pass_choice import PassChoice  # noqa: E402
from vivace.engine.runners.cuda.rows.launches import RowLaunch  # noqa: E402
from vivace.engine.runners.cuda.rows.passes import RowPasses  # noqa: E402
from vivace.engine.runners.cuda.runner import CudaRunner  # noqa: E402
from vivace.engine.runners.cuda.weights.build import build_model, random_weights  # noqa: E402

pytestmark = pytest.mark.skipif(
    not COMPILER and not torch.cuda.is_available(), reason="neither an NVIDIA GPU nor a C++ compiler"
)
SHAPE = Shape(2, 512, 1280, 4, 2, 640, 512)  # two layers: the second one's keys depend on all kernels
LENGTHS = (70, 141, 30, 20)  # one part of the attention, several, one page; and one for the host
DRAFTED = (61, 132, 30, 20)  # a draft crosses into a new page; another, to where the attention has two parts
CONTEXT = 512


QWEN3 = replace(SHAPE, qkv_bias=False, qk_norm=True)


def make_runner(bits: int, seed: int, kv_bits: int = 16, shape: Shape = SHAPE) -> CudaRunner:
    is_real = torch.cuda.is_available()
    device = "cuda" if is_real else "cpu"
    model, dense = build_model(shape, random_weights(shape, seed, device), bits, device, CONTEXT)
    return CudaRunner(
        "test", model, dense, Letters(), bits=bits, kv_bits=kv_bits, context_tokens=CONTEXT,
        make_launcher=Module if is_real else Emulator, blocks=132 if is_real else 16,
    )  # fmt: skip


class Played:
    """Some sequences behind random texts; what they say, alone or together."""

    def __init__(self, runner: CudaRunner, seed: int, lengths: tuple[int, ...] = LENGTHS) -> None:
        self.runner = runner
        self.texts = [some(length, seed + index) for index, length in enumerate(lengths)]
        # The temperature makes a random model say other things than its last token.
        drawn = [SamplingSpec(60.0, (1 << 40) + seed), SamplingSpec(), SamplingSpec(60.0, seed + 1)]
        self.sampling = [*drawn, None]
        for seq, text in enumerate(self.texts):
            runner.forward([Span(seq, 0, text)])
        self.said: list[list[int]] = [[] for _ in self.texts]

    def begin(self) -> None:
        for seq, text in enumerate(self.texts):
            self.runner.trim(seq, len(text))
        self.said = [[text[0]] for text in self.texts]

    def fork(self, source: int) -> None:
        """Go on from where a sequence stands in a new one, too."""
        self.runner.share(source, len(self.texts), self.row(source).start)
        self.texts.append(self.texts[source])
        self.sampling.append(self.sampling[source])
        self.said.append(list(self.said[source]))

    def row(self, seq: int, draft: list[int] | None = None) -> DecodeRow:
        said = self.said[seq]
        start = len(self.texts[seq]) + len(said) - 1
        return DecodeRow(seq, start, said[-1], self.sampling[seq], tuple(draft or ()))

    def step(self, seqs: list[int], steps_ahead: int, drafts: dict[int, list[int]] | None = None) -> None:
        rows = [self.row(seq, (drafts or {}).get(seq)) for seq in seqs]
        for row, each in zip(rows, self.runner.decode_rows(rows, steps_ahead), strict=True):
            if each is not None:
                self.said[row.seq] += each if isinstance(each, list) else [self.sample(row.seq, each)]
                if len(each) <= len(row.draft):
                    self.runner.trim(row.seq, row.start + len(each))

    def step_alone(self, seq: int) -> None:
        row = self.row(seq)
        span = Span(seq, row.start, [row.token], want=1)
        if row.sampling:
            self.said[seq] += self.runner.decode(span, row.sampling)
        else:
            self.said[seq].append(self.sample(seq, self.runner.forward([span])))

    def sample(self, seq: int, logits: Logits) -> int:
        """What the host says, from all bits of the logits."""
        return zlib.crc32(logits.tobytes(), seq) % SHAPE.vocab

    def written(self, seq: int) -> "torch.Tensor":  # type: ignore[name-defined]
        """The keys and values of all that was said but the last, as bits."""
        self.runner._passes.synchronize()
        begin = len(self.texts[seq])
        at = torch.arange(begin, begin + len(self.said[seq]) - 1)
        pages = torch.tensor(self.runner._pages.table(seq))[at // 64]
        return self.runner._kv[:, pages, :, :, at % 64].view(torch.uint8).cpu().clone()


def alone(played: Played, counts: list[int]) -> list[tuple[list[int], "torch.Tensor"]]:  # type: ignore[name-defined]
    played.begin()
    for seq, count in enumerate(counts):
        for _ in range(count):
            played.step_alone(seq)
    return [(played.said[seq], played.written(seq)) for seq in range(len(counts))]


@pytest.fixture
def is_soon_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attention has two parts from 136 tokens on, so that rows with one part and with more meet."""
    for bits in (4, 8, 16):
        soon = replace(tuning.TUNINGS[bits], attention_cluster=2, attention_parts=((136, 1), (400, 2)))
        monkeypatch.setitem(tuning.TUNINGS, bits, soon)


@pytest.mark.usefixtures("is_soon_cut")
@pytest.mark.parametrize(
    ("bits", "kv_bits", "is_wide", "shape"),
    [
        pytest.param(8, 16, False, SHAPE, id="8 bits"),
        pytest.param(8, 16, True, SHAPE, id="8 bits, large products"),
        pytest.param(16, 16, False, SHAPE, id="bf16", marks=pytest.mark.thorough),
        pytest.param(4, 16, False, SHAPE, id="4 bits", marks=pytest.mark.thorough),
        pytest.param(8, 8, True, SHAPE, id="8-bit KV, large products", marks=pytest.mark.thorough),
        pytest.param(8, 16, True, QWEN3, id="Qwen3, large products"),
        pytest.param(8, 8, False, QWEN3, id="Qwen3, 8-bit KV", marks=pytest.mark.thorough),
    ],
)
def test_rows_come_out_as_alone(
    bits: int, kv_bits: int, is_wide: bool, shape: Shape, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sequences of different lengths that come and go at random: the same tokens and KV, to the bit."""
    if is_wide:
        monkeypatch.setattr(tuning, "WIDE_ROWS", 2)
    played, chance = Played(make_runner(bits, seed, kv_bits, shape), seed), random.Random(seed)
    played.begin()
    for _ in range(4):
        seqs = [seq for seq in range(4) if chance.random() < 0.8] or [0, 3]
        played.step(seqs, chance.randrange(2))
    together = [(played.said[seq], played.written(seq)) for seq in range(4)]
    expected = alone(played, [len(said) - 1 for said, _ in together])
    for (said, written), (said_alone, written_alone) in zip(together, expected, strict=True):
        assert said == said_alone
        assert torch.equal(written, written_alone)


def draft_of(text: list[int], chance: random.Random) -> list[int]:
    """Up to 5 tokens of a text, one of them wrong in every second draft."""
    draft = text[: chance.randint(0, 5)]
    if draft and chance.random() < 0.5:
        at = chance.randrange(len(draft))
        draft[at] = (draft[at] + 1) % SHAPE.vocab
    return draft


@pytest.mark.usefixtures("is_soon_cut")
@pytest.mark.parametrize(
    ("bits", "kv_bits", "is_wide", "shape"),
    [
        pytest.param(8, 16, False, SHAPE, id="8 bits"),
        pytest.param(8, 8, True, QWEN3, id="Qwen3, 8-bit KV, large products", marks=pytest.mark.thorough),
        pytest.param(8, 16, True, SHAPE, id="8 bits, large products", marks=pytest.mark.thorough),
        pytest.param(16, 16, False, SHAPE, id="bf16", marks=pytest.mark.thorough),
        pytest.param(4, 16, False, SHAPE, id="4 bits", marks=pytest.mark.thorough),
    ],
)
def test_drafts_in_company_come_out_as_alone(
    bits: int, kv_bits: int, is_wide: bool, shape: Shape, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafts of several sequences in one pass, right and wrong, and a fork: tokens and KV to the bit."""
    if is_wide:
        monkeypatch.setattr(tuning, "WIDE_ROWS", 2)
    played, chance = Played(make_runner(bits, seed, kv_bits, shape), seed, DRAFTED), random.Random(seed)
    expected = alone(played, [7, 7, 7, 2])
    played.begin()
    longest = 0
    for step in range(5):
        if step == 1:
            played.fork(1)
        texts = [expected[seq if seq < 4 else 1][0] for seq in range(len(played.texts))]
        left = [seq for seq, text in enumerate(texts) if len(played.said[seq]) < len(text)]
        if not left:
            break
        seqs = [seq for seq in left if chance.random() < 0.8] or left
        drafts = {
            seq: draft_of(texts[seq][len(said) : -1], chance)
            for seq, said in enumerate(played.said)
            if played.sampling[seq] and chance.random() < 0.8
        }
        before = [len(said) for said in played.said]
        played.step(seqs, chance.randrange(2), drafts)
        longest = max(longest, *(len(said) - was for said, was in zip(played.said, before, strict=True)))
    assert longest > 1
    for seq, said in enumerate(played.said):
        said_alone, written_alone = expected[seq if seq < 4 else 1]
        assert said == said_alone[: len(said)]
        assert torch.equal(played.written(seq), written_alone[: len(said) - 1])


def test_who_joins_is_in_the_next_pass(seed: int) -> None:
    """While a pass is in flight a new row waits for the following one; who leaves delays nobody."""
    played = Played(make_runner(8, seed), seed)
    played.begin()
    played.step([0, 1], 1)
    played.step([0, 1, 2], 1)
    assert [len(said) for said in played.said] == [3, 3, 1, 1]
    played.step([1, 2], 1)
    assert [len(said) for said in played.said] == [3, 4, 2, 1]
    played.runner.trim(1, len(played.texts[1]))
    played.said[1] = played.said[1][:1]
    played.step([1, 2], 1)
    assert [len(said) for said in played.said] == [3, 1, 3, 1]


@pytest.mark.usefixtures("is_soon_cut")
def test_a_draft_is_verified_as_rows_with_the_same_result(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right, wrong in its middle, across a page and to where the attention has two parts: tokens and KV."""
    monkeypatch.setattr(tuning, "WIDE_ROWS", 4)
    monkeypatch.setitem(tuning.DRAFTS[8], 8, (1, 1))
    played = Played(make_runner(8, seed), seed, DRAFTED)
    runner, sampling = played.runner, SamplingSpec(60.0, seed)
    played.begin()
    for seq in range(2):
        start = len(played.texts[seq])
        right = [played.said[seq][0]]
        for _ in range(6):
            right += runner.decode(Span(seq, start + len(right) - 1, right[-1:]), sampling)
        for draft in (right[1:6], [*right[1:3], right[3] ^ 1, *right[4:6]]):
            found = []
            for runner._choice in (PassChoice(32), PassChoice(32, rows_from=2)):
                runner.trim(seq, start)
                said = runner.decode(Span(seq, start, [right[0], *draft]), sampling)
                played.said[seq] = [right[0], *said]
                found.append((said, played.written(seq)))
            (plain, kept), (rows, kept_by_rows) = found
            assert plain == rows == right[1 : 1 + len(rows)]
            assert torch.equal(kept, kept_by_rows)


@pytest.mark.usefixtures("is_soon_cut")
@pytest.mark.parametrize("start", [3, 70, 141, 300])
def test_rows_of_a_draft_share_what_they_read(start: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a page, over ranks, over two parts, with two runs for one rank: the same tokens and KV."""
    monkeypatch.setattr(tuning, "WIDE_ROWS", 4)
    monkeypatch.setitem(tuning.DRAFTS[8], 8, (1, 1))
    runner, sampling, tokens = make_runner(8, seed), SamplingSpec(60.0, seed), some(7, seed + 1)
    runner.forward([Span(0, 0, some(start, seed))])
    found, kernels, run_launch = [], list[str](), RowPasses._run_launch

    def run(self: RowPasses, launcher: Launcher, launch: RowLaunch) -> None:
        kernels.append(launch[0])
        run_launch(self, launcher, launch)

    monkeypatch.setattr(RowPasses, "_run_launch", run)
    for most_parts in (0, 4):
        monkeypatch.setattr(plan, "MOST_DRAFT_PARTS", most_parts)
        kernels.clear()
        runner.trim(0, start)
        runner._reserve_row(0, start, len(tokens))
        number = runner._row_passes.start_draft(0, start, tokens, sampling)
        said = runner._row_passes.collect(number, len(tokens))
        assert ("merge_ranks" in kernels) == (most_parts > 0)
        pages = torch.tensor(runner._pages.table(0))
        at = torch.arange(start, start + len(tokens))
        found.append((said, runner._kv[:, pages[at // 64], :, :, at % 64].view(torch.uint8).cpu().clone()))
    (alone, kept), (shared, kept_by_shared) = found
    assert alone == shared
    assert torch.equal(kept, kept_by_shared)

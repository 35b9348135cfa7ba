"""gpt-oss's kernels against plain torch; a token's results in any pass, and in company."""

import random
import statistics
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from tests.engine.runners.cuda.bed import NAN, Bed, distance  # noqa: E402
from tests.engine.runners.cuda.emulator import COMPILER, Emulator  # noqa: E402
from tests.engine.runners.cuda.oss_bed import SMALL, rounded_weights  # noqa: E402
from tests.engine.runners.cuda.test_rows import Played, alone, is_soon_cut, make_runner  # noqa: E402, F401
from tests.engine.runners.cuda.test_runner import some  # noqa: E402
from vivace.engine.runners.base import SamplingSpec, Span  # noqa: E402
from vivace.engine.runners.cuda.decode import tuning  # noqa: E402
from vivace.engine.runners.cuda.decode.experts import share_experts  # noqa: E402
from vivace.engine.runners.cuda.decode.launch import Launch  # noqa: E402
from vivace.engine.runners.cuda.decode.plan import Size  # noqa: E402
from vivace.engine.runners.cuda.kernels.driver import Module  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.model.oss import widen_mxfp4  # noqa: E402
from vivace.engine.runners.cuda.model.shape import Shape  # noqa: E402
from vivace.engine.runners.cuda.pass_choice import PassChoice  # noqa: E402
from vivace.engine.runners.cuda.weights.layout import gate_up_pairs  # noqa: E402
from vivace.engine.runners.cuda.weights.oss import untile_mxfp4  # noqa: E402

pytestmark = pytest.mark.skipif(
    not COMPILER and not torch.cuda.is_available(), reason="neither an NVIDIA GPU nor a C++ compiler"
)
TWO = replace(SMALL, layers=2)  # with a window and without
NEAR = 0.3  # of logits where rounding turned a near tie of two experts: seen to cost 0.03
REAL = torch.cat([torch.arange(32), torch.arange(64, 96)])  # dimensions of a row that a head of 64 has
HOLES = torch.cat([torch.arange(32, 64), torch.arange(96, 128)])


def with_window(window: int) -> Shape:
    assert SMALL.oss
    return replace(SMALL, layers=1, oss=replace(SMALL.oss, window=window))


def bed_of(shape: Shape, tokens: int, seed: int, parts: int = 2, bits: int = 8) -> Bed:
    bed = Bed(shape, bits, tokens, seed, parts=parts)
    bed.run_launch = share_experts(Module if bed.device == "cuda" else Emulator)(bed.plan).run
    return bed


@pytest.mark.parametrize("window", [0, 40, 100])
@pytest.mark.parametrize("parts", [1, 2])
def test_attention(window: int, parts: int, seed: int) -> None:
    """Sinks, windows and heads of 64 behind 140 tokens; what lies between the halves is not read."""
    shape = with_window(window)
    bed = bed_of(shape, 2, seed, parts)
    bed.poison()
    bed.fill_kv(142)
    bed.at(140, 2)
    q = torch.randn(2, shape.heads, 64, device=bed.device).to(torch.bfloat16)
    bed.buffers.q[..., REAL] = q
    bed.buffers.kv[..., HOLES] = NAN
    bed.launch("attention")
    keys, values = (bed.kv_rows(which, 142)[..., REAL] for which in (0, 1))
    layer = bed.model.layers[0]
    assert layer.oss
    view = reference.View(shape.score_scale, window, layer.oss.sinks)
    wanted = reference.attend(q.float(), keys, values, 140, view)
    assert distance(bed.combine_parts()[..., REAL], wanted) < 0.01


@pytest.mark.parametrize(
    ("tokens", "start", "parts", "window"),
    [(16, 130, 1, 0), (9, 1010, 2, 0), (13, 1140, 1, 0), (16, 140, 2, 40), (11, 1100, 1, 100)],
)
def test_attention_of_a_draft(tokens: int, start: int, parts: int, window: int, seed: int) -> None:
    """Rows that share what they read come out as those that do not, to the bit; padding is not written."""
    found = []
    for kernels, tiles in ((["attention"], 0), (["draft_attention", "merge_ranks"], 2)):
        bed = Bed(with_window(window), 8, 16, seed, parts=parts, tuning={"draft_tiles": tiles})
        bed.poison()
        bed.buffers.rank.fill_(NAN)
        bed.fill_kv(start + tokens)
        bed.buffers.kv[..., HOLES] = NAN
        bed.buffers.q.normal_()[..., HOLES] = NAN
        bed.at(start, tokens)
        for kernel in kernels:
            bed.launch(kernel)
        found.append([each.view(torch.int32) for each in (bed.buffers.part, bed.buffers.part_stats)])
    (part, stats), (shared_part, shared_stats) = found
    parts = 1 if window else parts
    assert not part[:parts, :tokens].view(torch.float32).isnan().any()
    assert torch.equal(shared_part[:parts, :tokens], part[:parts, :tokens])
    if parts > 1:
        assert torch.equal(shared_stats[:parts, :tokens, :, :2], stats[:parts, :tokens, :, :2])
    assert shared_part[:, tokens:].view(torch.float32).isnan().all()


def test_place(seed: int) -> None:
    """q and k of heads of 64 are turned where they lie; k and v go to rows of 128, zeros behind each half."""
    shape, start, count = with_window(0), 50, 30
    bed = bed_of(shape, 1, seed)
    bed.poison()
    bed.at(start, count)
    turning = shape.heads + shape.kv_heads
    rows = torch.randn(count + 5, turning + shape.kv_heads, 64, device=bed.device).to(torch.bfloat16)
    before = rows.clone()
    wide = reference.in_rows(before[:count].float())
    wide[:, :turning] = reference.rotate(wide[:, :turning], bed.model.rotation[start : start + count])
    place = (bed.buffers.state, rows, bed.model.rotation, bed.buffers.pages, bed.buffers.kv[0])
    bed.run_launch(Launch("place", Size((count + 5, 1, 1), 256, 1, 0), place, overlaps=False))
    bed.finish()
    assert distance(rows[:count, :turning], reference.out_of_rows(wide[:, :turning], 64)) < 0.01
    assert torch.equal(rows[count:], before[count:])
    assert torch.equal(rows[:, turning:], before[:, turning:])
    for which, first in ((0, shape.heads), (1, turning)):
        kept = bed.kv_rows(which, start + count)[start:]
        assert distance(kept, wide[:, first : first + shape.kv_heads]) < 0.01
        assert not kept[..., HOLES].any()
    assert int((~bed.buffers.kv.isnan()).sum()) == 2 * count * shape.kv_heads * 128


@pytest.mark.parametrize("count", [40, 100])
def test_the_last_tokens_come_first(count: int, seed: int) -> None:
    """Rows of q, k and v are as wide as the heads."""
    shape = with_window(0)
    bed = bed_of(shape, 1, seed)
    bed.at(50, count)
    x = torch.randn(120, shape.hidden, device=bed.device)
    rows = torch.randn(120, shape.qkv_rows, device=bed.device).to(torch.bfloat16)
    before, skipped, state = rows.clone(), max(0, count - 64), torch.zeros_like(bed.buffers.state)
    words = shape.hidden // 4 + shape.qkv_rows // 8
    arguments = (bed.buffers.state, state, x, rows, 64)
    bed.run_launch(Launch("keep_tail", Size((-(-words // 64), 1, 1), 64, 1, 0), arguments, overlaps=False))
    bed.finish()
    assert torch.equal(rows[: count - skipped], before[skipped:count])


@pytest.mark.parametrize("bits", [8, 4])
def test_a_pass(bits: int, seed: int) -> None:
    """Logits of 5 texts of 2 tokens, with the weights as they were rounded; experts are not rounded at all.

    A near tie of two experts may turn, and changes all that follows in its text.
    """
    bed = bed_of(TWO, 2, seed, bits=bits)
    weights, tokens, each = rounded_weights(bed.plain, bed.model), some(10, seed), []
    for at in range(0, 10, 2):
        text = tokens[at : at + 2]
        ids = torch.tensor(text, device=bed.device)
        wanted = reference.forward(TWO, weights, ids, bed.model.rotation)
        each += [distance(*rows) for rows in zip(bed.run_pass(text, 0), wanted, strict=True)]
    assert statistics.median(each) < 0.01
    assert sorted(each)[-3] < 0.03  # all but one text


@pytest.mark.parametrize("window", [0, 40])
def test_a_token_does_not_depend_on_the_size_of_its_pass(
    window: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind 125 tokens, where a window's first run of positions changes: to the bit, and in groups, too."""
    monkeypatch.setattr(tuning, "EXPERT_GROUPS", {8: 4})
    shape, tokens = with_window(window), some(32, seed)
    alone: Any = None
    for size in (1, 2, 4, 8, 16, 32):
        bed = bed_of(shape, size, seed)
        bed.fill_kv(125)
        count = 32 if size == 1 else max(8, size)
        rows = [bed.run_pass(tokens[at : at + size], 125 + at) for at in range(0, count, size)]
        found = torch.cat(rows)
        alone = found if alone is None else alone
        assert not found.isnan().any()
        assert torch.equal(found, alone[:count]), size


def test_a_prefill_multiplies_by_the_same_numbers(seed: int) -> None:
    """Out of their tiles the experts are those of the file, four rows of gate and four of up in turns."""
    bed = bed_of(TWO, 1, seed)
    layer, at = bed.model.layers[1], "layers.1.mlp.experts."
    for name, matrix, columns in (
        ("gate_up_proj", layer.gate_up, TWO.hidden),
        ("down_proj", layer.down, TWO.expert_ffn),
    ):
        wanted = widen_mxfp4(bed.plain[f"{at}{name}_blocks"], bed.plain[f"{at}{name}_scales"])
        if name == "gate_up_proj":
            wanted = torch.cat([wanted[:, ::2], wanted[:, 1::2]], dim=1)[:, gate_up_pairs(TWO.expert_ffn)]
        assert torch.equal(untile_mxfp4(matrix.tiles, columns), wanted.flatten(0, 1))


def test_a_prompt_a_draft_and_a_stream_agree(seed: int) -> None:
    """With the text read at once in plain torch; a draft and single steps say the same tokens."""
    runner = make_runner(8, seed, shape=TWO)
    text = some(101, seed)
    runner._choice = PassChoice(2)  # a prompt of this length would be read by passes of 32
    last = torch.tensor(runner.forward([Span(0, 0, text[:100], want=1)]))
    plain, model = make_plain(seed)
    wanted = reference.forward(TWO, rounded_weights(plain, model), torch.tensor(text), model.rotation)
    assert distance(last, wanted[99:100].cpu()) < NEAR
    runner.share(0, 1, 100)
    said = text[100:]
    for at in range(100, 103):
        said += runner.decode(Span(1, at, said[-1:]), SamplingSpec(), steps_ahead=1)
    assert runner.decode(Span(0, 100, said[:-1]), SamplingSpec()) == said[1:]


def make_plain(seed: int) -> tuple[Any, Any]:
    bed = Bed(TWO, 8, 1, seed)
    return bed.plain, bed.model


@pytest.mark.usefixtures("is_soon_cut")
def test_rows_come_out_as_alone(seed: int) -> None:
    """Sequences of different lengths that come and go: the same tokens and KV as alone, to the bit."""
    played = Played(make_runner(8, seed, shape=TWO), seed)
    chance = random.Random(seed)
    played.begin()
    for _ in range(3):
        seqs = [seq for seq in range(4) if chance.random() < 0.8] or [0, 3]
        played.step(seqs, chance.randrange(2))
    together = [(played.said[seq], played.written(seq)) for seq in range(4)]
    expected = alone(played, [len(said) - 1 for said, _ in together])
    for (said, written), (said_alone, written_alone) in zip(together, expected, strict=True):
        assert said == said_alone
        assert torch.equal(written, written_alone)

"""32k tokens in one session (128k in a thorough run) on a model of a few kilobytes: plumbing, not wits.

Its one layer looks back 64 tokens, so that 131,000 of them are read in 40 s of CPU time; a llama of
the same size, which looks back at everything, takes minutes. That also says what it must answer anywhere in a
long log: the same as after the last few hundred tokens alone.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.engine.desk import Desk
from tests.thorough import examples
from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.runners.llamacpp import LlamaRunner
from vivace.engine.wire.frames import Append, Close, Fork, Generate, Open, Park, Rewind, Sampling, Waterfall

LIMIT = min(131_072, examples(32_768))
TRAINED = LIMIT // 16
WINDOW, WIDTH, VOCAB, END = 64, 32, 259, 2
FAST = {1: 1.0, 512: 50.0}  # chunks of 512
LOG = [random.Random(128).randrange(3, VOCAB) for _ in range(LIMIT + 100)]
PREFILLED, MIDDLE, REWOUND = LIMIT - 72, LIMIT // 2, LIMIT * 3 // 4


def write_model(path: Path) -> None:
    """A random gemma2 with one layer, one head and a byte vocabulary."""
    writer, rng = gguf.GGUFWriter(path, "gemma2"), np.random.default_rng(0)
    writer.add_context_length(TRAINED)
    writer.add_block_count(1)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_key_length(WIDTH)
    writer.add_value_length(WIDTH)
    writer.add_sliding_window(WINDOW)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))])
    writer.add_token_scores([0.0] * VOCAB)
    writer.add_token_types([2, 3, 3] + [6] * 256)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(END)
    layer = "blk.0."
    for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
        writer.add_tensor(f"{layer}{name}.weight", np.ones(WIDTH, np.float32))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    writer.add_tensor("token_embd.weight", rng.normal(0, 0.3, (VOCAB, WIDTH)).astype(np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        weights = rng.normal(0, 0.3, (WIDTH, WIDTH)).astype(np.float32)
        writer.add_tensor(f"{layer}{name}.weight", weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_model(path)
    return path


@pytest.fixture(scope="module")
def desk(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Nearly as many tokens as fit are in the KV of the session `long`. Tests work on forks of it."""
    runner = LlamaRunner(model, context_tokens=LIMIT, session_tokens=LIMIT, threads=1)
    parked_cache = ParkedCache(
        tmp_path_factory.mktemp("kv"), kv_format=runner.info.kv_format, limit_bytes=1 << 30
    )
    desk = Desk(runner, parked_cache, FAST)
    desk.run(Open("long"), Append("long", "read", LOG[:PREFILLED]))
    assert desk.finished("read").waterfall.new_tokens == PREFILLED
    yield desk
    desk.engine.close()
    runner.close()


def say(desk: Desk, session: str, tokens: list[int]) -> tuple[list[int], Waterfall]:
    turn = f"{session}/{len(desk.sent)}"
    sampling = Sampling(logit_bias={END: -100.0})
    desk.run(Generate(session, turn, tokens, max_tokens=12, sampling=sampling, use_drafts=False))
    return desk.tokens(turn), desk.finished(turn).waterfall


def say_after(desk: Desk, session: str, tokens: list[int], *, length: int) -> tuple[list[int], Waterfall]:
    """On a fork of `long`, which is closed afterwards."""
    desk.run(Fork(session, "long", length))
    answer = say(desk, session, tokens)
    desk.run(Close(session))
    return answer


@pytest.fixture(scope="module")
def short(model: Path) -> Iterator[Desk]:
    """The same model with the same stretch, for logs that are short."""
    runner = LlamaRunner(model, context_tokens=LIMIT, session_tokens=LIMIT, threads=1)
    yield Desk(runner, costs=FAST)
    runner.close()


def expected(short: Desk, end: int, tokens: list[int]) -> list[int]:
    name = f"{end}/{len(short.sent)}"
    short.run(Open(name))
    return say(short, name, LOG[end - 300 : end] + tokens)[0]


def test_the_facts_are_honest(desk: Desk) -> None:
    """What one session may hold, what the model was trained for, and how far it is stretched."""
    info = desk.runner.info
    assert (info.limit_tokens, info.trained_tokens, info.yarn_factor) == (LIMIT, TRAINED, 16.0)


def test_without_a_wish_nothing_is_stretched(model: Path) -> None:
    """A large KV alone does not scale positions: a session is as long as the model was trained for."""
    runner = LlamaRunner(model, context_tokens=2 * TRAINED, threads=1)
    assert (runner.info.yarn_factor, runner.info.limit_tokens) == (1.0, TRAINED)
    desk = Desk(runner, costs=FAST)
    desk.run(Open("s"), Generate("s", "t", LOG[:TRAINED]))
    assert desk.failed("t").code == "context_length_exceeded"
    runner.close()


def test_a_turn_at_the_end_of_a_long_log(desk: Desk, short: Desk) -> None:
    """At the end the model says what it says after the last few hundred tokens."""
    said, waterfall = say_after(desk, "end", [5, 6], length=PREFILLED)
    assert said == expected(short, PREFILLED, [5, 6])
    assert (waterfall.cached_tokens, waterfall.new_tokens) == (PREFILLED, 2)


def test_a_rewind_of_a_long_log(desk: Desk, short: Desk) -> None:
    """Back by a quarter and on from there, prefilling what is new only."""
    desk.run(Fork("back", "long", PREFILLED))
    say(desk, "back", [9])
    desk.run(Rewind("back", REWOUND))
    said, waterfall = say(desk, "back", [7, 8])
    desk.run(Close("back"))
    assert said == expected(short, REWOUND, [7, 8])
    assert (waterfall.cached_tokens, waterfall.new_tokens) == (REWOUND, 2)


def test_a_fork_of_a_long_log_shares_its_cells(desk: Desk, short: Desk) -> None:
    """Two sessions of nearly all tokens fit into the cells of one, for they have the same ones."""
    desk.run(Fork("a", "long", PREFILLED), Fork("b", "long", MIDDLE))
    one, first = say(desk, "a", [3])
    other, second = say(desk, "b", [4])
    desk.run(Close("a"), Close("b"))
    assert (first.cached_tokens, second.cached_tokens) == (PREFILLED, MIDDLE)
    assert one == expected(short, PREFILLED, [3])
    assert other == expected(short, MIDDLE, [4])


def test_a_long_log_is_parked_and_comes_back(desk: Desk, short: Desk) -> None:
    """From disk, every token of it."""
    desk.run(Park("long"))
    said, waterfall = say(desk, "long", [11])
    desk.run(Rewind("long", PREFILLED))
    assert waterfall.restored_tokens == PREFILLED
    assert said == expected(short, PREFILLED, [11])


def test_what_goes_beyond_the_limit_is_refused(desk: Desk) -> None:
    """One token too many is refused before any pass, in numbers; as many as fit are not."""
    desk.run(Fork("full", "long", PREFILLED), Generate("full", "over", LOG[PREFILLED:LIMIT]))
    assert desk.failed("over").code == "context_length_exceeded"
    assert str(LIMIT + 1) in desk.failed("over").message
    desk.run(Generate("full", "fits", LOG[PREFILLED : LIMIT - 1], max_tokens=9))
    assert desk.finished("fits").waterfall.output_tokens == 1
    assert desk.finished("fits").reason == "length"
    desk.run(Close("full"))

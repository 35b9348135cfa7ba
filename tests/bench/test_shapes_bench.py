"""`vivace bench gpu --shape` without a GPU: a tiny shape with random weights, in plain torch."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from tests.engine.fixtures import PAYING, keep_torch_off_amx  # noqa: E402
from tests.engine.runners.cuda.plain_launcher import PlainLauncher  # noqa: E402
from vivace.bench.gpu.peers import vllm  # noqa: E402
from vivace.bench.gpu.peers.__main__ import measure  # noqa: E402
from vivace.bench.gpu.peers.asking import PEERS, TEAM_PEERS, measure_peers  # noqa: E402
from vivace.bench.gpu.peers.transformers import transformers_config  # noqa: E402
from vivace.bench.gpu.played import ANSWERS, COMMITS, Change, new_tokens, old_text  # noqa: E402
from vivace.bench.gpu.random_gguf import MIXES, write_gguf  # noqa: E402
from vivace.bench.gpu.shapes import (  # noqa: E402
    Sizes,
    known_names,
    measure_runner,
    random_runner,
    shape_table,
)
from vivace.cli.measure.bench import bench  # noqa: E402
from vivace.engine.runners.base import Span  # noqa: E402
from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES, Shape  # noqa: E402
from vivace.engine.runners.cuda.weights.checkpoint import open_checkpoint  # noqa: E402
from vivace.engine.runners.llamacpp import LlamaRunner  # noqa: E402

DENSE = Shape(2, 512, 512, 4, 2, 320, 1024)
MIXED = replace(
    DENSE,
    ffn=512,
    qkv_bias=False,
    qk_norm=True,
    tied_head=False,
    experts=8,
    experts_per_token=4,
    expert_ffn=128,
)
SMALL = Sizes(context=96, new_tokens=(64, 128), rounds=1, decoded=12, edits=1)


@pytest.fixture(autouse=True)
def _few_threads() -> None:
    keep_torch_off_amx()
    torch.set_num_threads(1)


@functools.lru_cache  # some seconds each
def measured(shape: Shape, bits: int) -> dict[str, Any]:
    runner = random_runner(shape, bits, 1024, "bf16", PlainLauncher)
    found = measure_runner(runner, SMALL, PAYING)
    runner.close()
    return found


@pytest.mark.parametrize(("shape", "bits"), [(DENSE, 8), (DENSE, 4), (MIXED, 8)])
def test_a_shape_is_measured_through_the_engine(shape: Shape, bits: int) -> None:
    """Decoding, first tokens and edits get figures; a played edit says the same with drafts and without."""
    found = measured(shape, bits)
    assert found["decode"]["96"]["tokens"] == 12
    assert found["decode"]["96"]["tokens_per_s"] > 0
    assert set(found["first_token_ms"]) == {"64", "128"}
    for edits, changes in ((found["edits"], COMMITS[0]), (found["answers"], ANSWERS[0])):
        assert edits["identical"] == 1.0
        assert edits["tokens"] == new_tokens(changes)
        assert "Played" in edits["played"]


def test_a_played_edit_is_drafted_and_sometimes_wrong() -> None:
    """Most of what a commit keeps is accepted, what it changes is not, and a pass says several tokens."""
    edits = measured(DENSE, 8)["edits"]
    kept = sum(change.kept for change in COMMITS[0])
    assert edits["draft_rejected"] > 0
    assert kept / 2 < edits["draft_accepted"] <= kept
    assert edits["tokens_per_pass"] > 1.5


def test_an_answer_that_changes_nothing_is_drafted_whole() -> None:
    """What is played is what the model says when it is measured: no draft of it is wrong."""
    answers = measured(DENSE, 8)["answers"]
    assert ANSWERS[0] == (Change(98),)
    assert answers["draft_rejected"] == 0
    assert answers["draft_accepted"] > 80


def test_the_old_text_lacks_what_was_added_and_has_what_was_removed() -> None:
    """What a change keeps is in both texts, in order; the same seed removes the same tokens."""
    changes = COMMITS[2]
    new = list(range(1000, 1000 + new_tokens(changes)))
    old = old_text(new, changes, 1000, seed=1)
    kept = [token for token in old if token >= 1000]
    assert len(kept) == sum(change.kept for change in changes)
    assert kept == sorted(kept)
    assert len(old) - len(kept) == sum(change.removed for change in changes)
    assert new[44] not in old
    assert old == old_text(new, changes, 1000, seed=1)


def test_the_table_says_what_was_played_and_who_is_missing() -> None:
    """Every figure has a line, and so has a peer that could not be measured."""
    edits: dict[str, Any] = {"tokens_per_s": 900.0, "tokens_per_pass": 6.2, "different_rows": []}
    edits["without_drafts_tokens_per_s"] = 300.0
    part = {
        "decode": {"1024": {"tokens_per_s": 640.0}},
        "first_token_ms": {"1024": 12.5},
        "edits": edits,
        "answers": edits | {"tokens_per_s": 1200.0, "different_rows": ["played 3", "played 8"]},
        "passes": {"8": {"us": 2379.0, "tokens_per_s": 3362.0}},
    }
    peers = {"vllm": {"missing": "No module named 'vllm'"}}
    text = shape_table({"shape": "tiny", "gpu": {"name": "H200"}, "4-bit": part, "peers": peers})
    assert "4-bit  decode at 1,024: 640 tok/s" in text
    assert "edits, drafts on (played, authors' text): 900 tok/s, 6.2 tokens a pass" in text
    assert "edits, drafts on (played, a model's text): 1200 tok/s" in text
    assert text.count("drafts have changed the text") == 1
    assert "WRONG: drafts have changed the text of played 3, played 8" in text
    assert "first token of 1,024: 12.5 ms" in text
    assert "a pass of 8: 2379 µs" in text
    assert "vllm: No module named 'vllm'" in text
    assert "Played: random weights cannot edit." in text


def test_a_shape_that_nobody_knows_is_refused() -> None:
    """Before a GPU is looked for; the names that there are, are said."""
    done = CliRunner().invoke(bench, ["gpu", "--shape", "qwen9"])
    assert done.exit_code == 2
    assert "qwen3-coder-30b-a3b" in done.output


@pytest.mark.parametrize("name", [name for name in known_names() if KNOWN_SHAPES[name].oss is None])
def test_transformers_knows_every_shape(name: str) -> None:
    """Its own configuration has as many parameters in a layer as ours."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    shape = replace(KNOWN_SHAPES[name], layers=1)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers_config(shape))
    count = sum(each.numel() for each in model.parameters() if each.ndim > 1)
    assert count == shape.parameters


@pytest.mark.parametrize(
    ("name", "mix"),
    [
        ("qwen2.5-coder-1.5b", "Q4_K_M"),
        ("qwen3-0.6b", "Q8_0"),
        ("qwen3-coder-30b-a3b", "Q4_K_M"),
        ("gpt-oss-20b", "MXFP4"),
    ],
)
def test_llama_cpp_reads_a_random_file_of_every_family(tmp_path: Path, name: str, mix: str) -> None:
    """All logits are numbers, and our own kernels' loader finds the same shape in it."""
    known = KNOWN_SHAPES[name]
    experts = min(known.experts, 8)
    shape = replace(known, layers=2, vocab=512, tied_head=False, experts=experts)
    path = tmp_path / "random.gguf"
    write_gguf(path, shape, MIXES[mix])
    runner = LlamaRunner(path, context_tokens=128, threads=1)
    logits = runner.forward([Span(0, 0, list(range(100)), want=1)])
    assert logits.shape == (1, shape.vocab)
    assert np.isfinite(logits).all()
    assert logits.std() > 1e-3
    runner.close()
    found = open_checkpoint(path).shape
    assert replace(found, norm_epsilon=shape.norm_epsilon) == shape  # the file has it in 32 bits


@pytest.mark.parametrize(
    ("quantization", "fitting_gb", "left_gb"), [("fp8", 8.9, 15.2), ("gptq_marlin", 5.7, 15.2)]
)
def test_figures_of_weights_that_a_peer_left_as_they_were_are_refused(
    quantization: str, fitting_gb: float, left_gb: float
) -> None:
    """As vLLM leaves them whose configuration names no layers: its bf16 would stand there as 4 bits."""
    shape = KNOWN_SHAPES["qwen2.5-coder-7b"]
    vllm._check_format(shape, quantization, round(fitting_gb * 1e9))
    with pytest.raises(SystemExit, match=r"15\.2 GB of weights"):
        vllm._check_format(shape, quantization, round(left_gb * 1e9))


def test_every_peer_has_something_that_measures_it() -> None:
    """Each its own: who is asked by a name is not another one."""
    assert len({measure(name) for name in PEERS}) == len(PEERS)
    assert set(TEAM_PEERS) <= set(PEERS)


def test_a_peer_that_fails_is_a_line() -> None:
    """Without a GPU none of them can answer, and each says why."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU: they may answer")
    found = measure_peers({"shape": "qwen3-0.6b", "tokens": [1, 2, 3]})
    assert set(found) == {"vllm", "vllm_fp8", "vllm_int4", "transformers", "llama_cpp"}
    assert all(each["missing"] for each in found.values())

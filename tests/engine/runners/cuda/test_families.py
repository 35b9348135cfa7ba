"""Qwen2 and Qwen3 out of their files: the shape that each tells, and transformers' logits and tokens."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
gguf = pytest.importorskip("gguf", reason="gguf is not installed: vivace extras add cuda")
save_file = pytest.importorskip("safetensors.torch", reason="safetensors is not installed").save_file

from tests.engine.runners.cuda.bed import distance  # noqa: E402
from tests.engine.runners.cuda.test_checkpoint import write_gguf  # noqa: E402
from vivace.engine.runners.cuda.decode.launches import rotation_table  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.model.reference import StateDict  # noqa: E402
from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES, Shape  # noqa: E402
from vivace.engine.runners.cuda.weights.build import random_weights  # noqa: E402
from vivace.engine.runners.cuda.weights.checkpoint import describe, read_checkpoint  # noqa: E402
from vivace.errors import StartError  # noqa: E402

# Qwen3's heads are 128 wide whatever its width: 8 of them for 512 columns.
SHAPES = {
    "qwen2": Shape(2, 512, 1024, 4, 2, 320, 640, tied_head=False),
    "qwen3": Shape(2, 512, 1024, 8, 2, 320, 640, qkv_bias=False, qk_norm=True),
    "qwen3_moe": Shape(
        2,
        512,
        512,
        8,
        2,
        320,
        640,
        qkv_bias=False,
        qk_norm=True,
        tied_head=False,
        experts=16,
        experts_per_token=4,
        expert_ffn=128,
    ),
}


def config_of(family: str, shape: Shape) -> dict[str, Any]:
    return {
        "model_type": family, "num_hidden_layers": shape.layers, "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn, "num_attention_heads": shape.heads, "head_dim": 128,
        "num_key_value_heads": shape.kv_heads, "max_position_embeddings": shape.trained_tokens,
        "vocab_size": shape.vocab, "rope_theta": shape.rope_theta, "rms_norm_eps": shape.norm_epsilon,
        "tie_word_embeddings": shape.tied_head,
        "num_experts": shape.experts, "num_experts_per_tok": shape.experts_per_token,
        "moe_intermediate_size": shape.expert_ffn, "norm_topk_prob": True,
    }  # fmt: skip


def stack_experts(weights: StateDict) -> StateDict:
    """A layer's experts as one tensor of each kind, as a GGUF has them."""
    found, stacks = StateDict(), dict[str, list[Any]]()
    for name, rows in weights.items():
        if ".experts." not in name:
            found[name] = rows
            continue
        before, after = name.split(".experts.")
        stacks.setdefault(f"{before}.experts.{after.split('.', 1)[1]}", []).append(rows)
    return StateDict(found | {name: torch.stack(rows) for name, rows in stacks.items()})


def fuse_experts(weights: StateDict) -> dict[str, Any]:
    """A layer's gates and ups as one tensor, as transformers has them in memory."""
    stacked = stack_experts(weights)
    for name in [name for name in stacked if name.endswith(".experts.gate_proj.weight")]:
        at = name.removesuffix("gate_proj.weight")
        stacked[f"{at}gate_up_proj"] = torch.cat([stacked.pop(name), stacked.pop(f"{at}up_proj.weight")], 1)
        stacked[f"{at}down_proj"] = stacked.pop(f"{at}down_proj.weight")
    return dict(stacked)


def write_folder(folder: Path, family: str, weights: StateDict, **changes: Any) -> Path:
    named = {name if name == "lm_head.weight" else f"model.{name}": rows for name, rows in weights.items()}
    save_file(named, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps(config_of(family, SHAPES["qwen3"]) | changes))
    return folder


@pytest.mark.parametrize("family", SHAPES)
def test_a_folder_tells_its_shape(family: str, tmp_path: Path, seed: int) -> None:
    """Biases, norms of the heads and the head of its own come out of config.json and the names."""
    shape = SHAPES[family]
    weights = random_weights(shape, seed)
    write_folder(tmp_path, family, weights, **config_of(family, shape))
    assert describe(tmp_path) == shape
    assert read_checkpoint(tmp_path)[1].keys() == weights.keys()


@pytest.mark.parametrize("family", SHAPES)
def test_a_gguf_tells_its_shape(family: str, tmp_path: Path, seed: int) -> None:
    """The same out of a GGUF file's header, whose head of its own is `output.weight`."""
    shape = SHAPES[family]
    plain = random_weights(shape, seed)
    write_gguf(tmp_path / "tiny.gguf", stack_experts(plain), family.replace("_", ""), shape=shape)
    found = describe(tmp_path / "tiny.gguf")
    assert replace(found, norm_epsilon=shape.norm_epsilon) == shape  # it is in 32 bits there
    read = read_checkpoint(tmp_path / "tiny.gguf")[1]
    assert read.keys() == {name for name in plain if ".experts." not in name}  # those are read when asked for
    for name, rows in plain.items():
        assert distance(read[name], rows) < 0.01, name


def test_a_norm_that_is_missing(tmp_path: Path, seed: int) -> None:
    """A qwen3 folder without the norms of its heads is refused by name."""
    weights = random_weights(replace(SHAPES["qwen3"], qk_norm=False), seed)
    write_folder(tmp_path, "qwen3", weights)
    with pytest.raises(StartError, match=r"self_attn\.q_norm\.weight is not there"):
        describe(tmp_path)


@pytest.mark.parametrize("family", SHAPES)
def test_transformers_says_the_same(family: str, seed: int) -> None:
    """Logits of 50 tokens in fp32 within 1e-4 of transformers', and the same likeliest tokens."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    shape = SHAPES[family]
    weights = StateDict({name: rows.float() for name, rows in random_weights(shape, seed).items()})
    kind = {"qwen2": "Qwen2", "qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe"}[family]
    make_config, make_model = (getattr(transformers, f"{kind}{part}") for part in ("Config", "ForCausalLM"))
    told = config_of(family, shape)
    theta = {"rope_type": "default", "rope_theta": told.pop("rope_theta")}
    theirs = make_model(make_config(**told, rope_parameters=theta)).float().eval()
    head = weights.get("lm_head.weight", weights["embed_tokens.weight"])
    named = {
        f"model.{name}": rows for name, rows in fuse_experts(weights).items() if name != "lm_head.weight"
    }
    theirs.load_state_dict(named | {"lm_head.weight": head})
    tokens = torch.randint(0, shape.vocab, (50,), generator=torch.Generator().manual_seed(seed))
    with torch.inference_mode():
        wanted = theirs(tokens[None]).logits[0]
    found = reference.forward(shape, weights, tokens, rotation_table(shape, 64, "cpu"))
    assert distance(found, wanted) < 1e-4
    assert torch.equal(found.argmax(1), wanted.argmax(1))


def test_known_shapes_have_no_problem() -> None:
    """Every dense shape that is known by name is one that the kernels take."""
    assert {name: shape.problem() for name, shape in KNOWN_SHAPES.items() if shape.is_dense} == {
        name: "" for name, shape in KNOWN_SHAPES.items() if shape.is_dense
    }


def test_experts_are_those_that_transformers_chooses(seed: int) -> None:
    """For 200 tokens: the same experts in the same order, and shares that differ by less than 1e-6."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers.models.qwen3_moe import modeling_qwen3_moe as theirs
    from transformers.models.qwen3_moe.configuration_qwen3_moe import Qwen3MoeConfig

    from vivace.engine.runners.cuda.model.mixture import choose_experts

    shape, generator = SHAPES["qwen3_moe"], torch.Generator().manual_seed(seed)
    router = theirs.Qwen3MoeTopKRouter(Qwen3MoeConfig(**config_of("qwen3_moe", shape)))
    router.weight.data = torch.randn(shape.experts, shape.hidden, generator=generator)
    rows = torch.randn(200, shape.hidden, generator=generator)
    with torch.inference_mode():
        *_, wanted_shares, wanted = router(rows)
    found, shares = choose_experts(rows @ router.weight.data.T, shape.experts_per_token)
    assert torch.equal(found, wanted)
    assert float((shares - wanted_shares).abs().max()) < 1e-6


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"norm_topk_prob": False}, "do not add up to 1"),
        ({"mlp_only_layers": [1]}, "some have none"),
        ({"num_experts_per_tok": 3}, "each token has 3 experts"),
        ({"num_experts": 17}, r"mlp\.gate\.weight is 16 by 512, and should be 17 by 512"),
    ],
)
def test_experts_that_our_kernels_do_not_know(
    change: dict[str, Any], reason: str, tmp_path: Path, seed: int
) -> None:
    """Each is refused by the headers, with the reason."""
    shape = SHAPES["qwen3_moe"]
    write_folder(tmp_path, "qwen3_moe", random_weights(shape, seed), **config_of("qwen3_moe", shape) | change)
    with pytest.raises(StartError, match=reason):
        describe(tmp_path)

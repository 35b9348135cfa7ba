"""gpt-oss in plain torch against transformers: logits, tokens and choices."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
pytest.importorskip("transformers", reason="transformers is not installed")

from tests.engine.runners.cuda.bed import distance  # noqa: E402
from tests.engine.runners.cuda.oss_bed import SMALL, transformers_model  # noqa: E402
from vivace.engine.runners.cuda.decode.launches import rotation_table  # noqa: E402
from vivace.engine.runners.cuda.model import mixture, reference  # noqa: E402
from vivace.engine.runners.cuda.model.oss import widen_mxfp4  # noqa: E402
from vivace.engine.runners.cuda.weights.oss import random_oss_weights  # noqa: E402

TOKENS = 100  # more than two windows


def some_tokens(seed: int) -> Any:
    return torch.randint(0, SMALL.vocab, (TOKENS,), generator=torch.Generator().manual_seed(seed))


def test_transformers_says_the_same(seed: int) -> None:
    """Logits of 100 tokens in fp32 within 1e-4 of transformers', and the same likeliest tokens."""
    weights, tokens = random_oss_weights(SMALL, seed), some_tokens(seed)
    with torch.inference_mode():
        wanted = transformers_model(SMALL, weights)(tokens[None]).logits[0]
    found = reference.forward(SMALL, weights, tokens, rotation_table(SMALL, TOKENS, "cpu"))
    assert distance(found, wanted) < 1e-4
    assert torch.equal(found.argmax(1), wanted.argmax(1))


def test_experts_are_those_that_transformers_chooses(seed: int) -> None:
    """The same experts in the same order, and shares within 1e-6."""
    weights = random_oss_weights(SMALL, seed)
    router = transformers_model(SMALL, weights).model.layers[0].mlp.router
    y = torch.randn(200, SMALL.hidden, generator=torch.Generator().manual_seed(seed))
    scores = y @ weights["layers.0.mlp.router.weight"].float().T + weights["layers.0.mlp.router.bias"].float()
    experts, shares = mixture.choose_experts(scores, SMALL.experts_per_token)
    with torch.inference_mode():
        _, wanted_shares, wanted_experts = router(y)
    assert torch.equal(experts, wanted_experts)
    assert torch.allclose(shares, wanted_shares, atol=1e-6)


def test_mxfp4_is_what_transformers_makes_of_it(seed: int) -> None:
    """All 16 numbers, and scales from the least to the largest that bf16 holds."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    generator = torch.Generator().manual_seed(seed)
    blocks = torch.randint(0, 256, (2, 64, 4, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(2, 250, (2, 64, 4), generator=generator, dtype=torch.uint8)
    wanted = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).transpose(1, 2)
    assert torch.equal(widen_mxfp4(blocks, scales), wanted)

"""A report as a run would give it, for tests that only look at how it is shown."""

from typing import Any

import pytest

from vivace.bench.limits import judge, limits_of


@pytest.fixture
def report() -> dict[str, Any]:
    """Every limit is met but one: background work costs too much."""
    made: dict[str, Any] = {
        "model": "a-model",
        "machine": {"cpu": "a CPU", "threads": 2, "memory_gb": 16.0, "load_at_start": 0.1},
        "versions": {"llama-cpp-python": "1.2.3"},
        "weights": {"downloaded": "model-q4.gguf", "chosen": "model-q8.gguf"},
        "data": "12 edits",
        "peer": {
            "decode_ratio": 0.99,
            "decode": {"ours_tokens_per_s": 12.4, "peer_tokens_per_s": 12.5},
            "first_token_ratio": 0.8,
            "first_token": {"ours_ms": 2000.0, "peer_ms": 2500.0},
            "edit_ratio": 1.75,
            "edit": {
                "ours_tokens_per_s": 35.0,
                "peer_tokens_per_s": 20.0,
                "peer_lookup_2_tokens_per_s": 20.0,
                "peer_lookup_10_tokens_per_s": 18.0,
            },
        },
        "edits": {
            "speedup": 2.8,
            "tokens_per_pass": 6.1,
            "identical": 0.95,
            "differences_near_ties": 1.0,
            "rows": 12,
            "with_drafts_tokens_per_s": 35.0,
            "without_drafts_tokens_per_s": 12.5,
        },
        "warm_turn": {"prefilled_tokens": 25, "new_tokens": 25},
        "steer": {
            "prefilled_tokens": 26,
            "new_tokens": 26,
            "latency_steps": 0.9,
            "latency_ms": 210.0,
            "decode_step_ms": 80.0,
        },
        "interrupt": {"latency_ms_p95": 42.0},
        "typing": {"first_token_ratio": 0.06, "with_typing_ms": 200.0, "without_typing_ms": 3400.0},
        "park": {
            "restore_ratio": 0.01,
            "restore_ms": 170.0,
            "prefill_ms": 17000.0,
            "left_restored_share": 0.99,
        },
        "background": {
            "realtime_slowdown": 1.2,
            "beside_decode_token_ms": 96.0,
            "alone_token_ms": 80.0,
        },
    }
    made["thresholds"] = {key: str(limit) for key, limit in limits_of(made).items()}
    made["passed"] = judge(made)
    return made

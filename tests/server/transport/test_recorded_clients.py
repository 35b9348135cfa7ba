"""Requests as programs of others send them, recorded from their runs, or built as their source builds them.

`recorded/*.json` has the bodies with every long text cut short. The programs themselves run in
tests/e2e/clients.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import fetch, send, status_of
from vivace.client.warm import ServerAddress
from vivace.config import Settings

RECORDED = Path(__file__).parent / "recorded"
BODIES = [
    pytest.param(body, id=f"{file.stem}-{number}")
    for file in sorted(RECORDED.glob("*.json"))
    for number, body in enumerate(json.loads(file.read_text("utf-8")))
]
PREFIX = "".join(f"value_{number} = {number}\n" for number in range(20))
# As llama.vim and llama.vscode build them; `samplers`, `n_indent` and `lora` are for what we do not have.
LLAMA_VIM = {
    "input_prefix": PREFIX,
    "input_suffix": "\nprint(total)\n",
    "input_extra": [{"text": "import os", "time": [1, 2], "filename": "other.py"}],
    "prompt": "    total = ",
    "n_predict": 128,
    "n_indent": 4,
    "top_k": 40,
    "top_p": 0.99,
    "stream": False,
    "samplers": ["top_k", "top_p", "infill"],
    "cache_prompt": True,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 1000,
}
VIM_FIELDS = ["content", "timings/prompt_n", "timings/predicted_ms", "truncated", "tokens_cached"]
WARM_UP = {
    "input_prefix": "",
    "input_suffix": "",
    "input_extra": [{"text": "import os", "filename": "other.py"}],
    "prompt": "",
    "n_predict": 0,
    "temperature": 0.0,
    "stream": False,
    "samplers": [],
    "cache_prompt": True,
    "t_max_prompt_ms": 1,
    "t_max_predict_ms": 1,
    "response_fields": [""],
}


@pytest.mark.parametrize("body", BODIES)
def test_a_recorded_request_is_answered(address: ServerAddress, body: dict[str, Any]) -> None:
    """A stream of chat chunks that ends well, with the usage if it was asked for."""
    answer = send(address, "POST", "/v1/chat/completions", body)
    *frames, done = answer.read().decode().removesuffix("\n\n").split("\n\n")
    answer.vivace_connection.close()  # type: ignore[attr-defined]
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames if frame.startswith("data: ")]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert (answer.status, done) == (200, "data: [DONE]")
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == "Hello there."
    assert choices[-1]["finish_reason"] == "stop"
    assert bool(chunks[-1].get("usage")) == ("stream_options" in body)


def test_llama_vim_gets_the_fields_it_names(address: ServerAddress) -> None:
    """Their paths are the names in the answer, as in llama.cpp's; without names all of it comes."""
    status, answer = fetch(address, "POST", "/infill", LLAMA_VIM | {"response_fields": VIM_FIELDS})
    assert (status, answer["content"], sorted(answer)) == (200, "Hello there.", sorted(VIM_FIELDS))
    status, answer = fetch(address, "POST", "/infill", LLAMA_VIM)
    assert (status, answer["content"]) == (200, "Hello there.")
    assert answer["timings"]["predicted_n"] > 0


def test_warm_ups_without_text_take_no_place(address: ServerAddress, served: Settings) -> None:
    """llama.vim sends one a second: they are answered, and what is typed at stays warm."""
    fetch(address, "POST", "/infill", LLAMA_VIM)
    sessions = status_of(served).engine.sessions
    for _ in range(6):
        assert fetch(address, "POST", "/infill", WARM_UP) == (200, {})
    _, answer = fetch(address, "POST", "/infill", LLAMA_VIM | {"prompt": "    total = v"})
    assert answer["timings"]["cache_n"] >= len(PREFIX)
    assert status_of(served).engine.sessions <= sessions + 1


def test_a_chat_edit_of_llama_vscode(address: ServerAddress) -> None:
    """`max_tokens` of -1 is no limit, and fields for samplers that we do not have are passed over."""
    body = {
        "messages": [
            {"role": "system", "content": "You are an expert coder."},
            {"role": "user", "content": "Rename x."},
        ],
        "stream": False,
        "cache_prompt": True,
        "samplers": "edkypmxt",
        "temperature": 0.8,
        "dynatemp_range": 0,
        "dynatemp_exponent": 1,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "typical_p": 1,
        "xtc_probability": 0,
        "repeat_last_n": 64,
        "repeat_penalty": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "dry_multiplier": 0,
        "max_tokens": -1,
        "timings_per_token": False,
    }
    status, answer = fetch(address, "POST", "/v1/chat/completions", body)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "Hello there.")
    status, answer = fetch(address, "POST", "/v1/chat/completions", body | {"max_tokens": 0})
    assert (status, answer["error"]["param"]) == (400, "max_tokens")

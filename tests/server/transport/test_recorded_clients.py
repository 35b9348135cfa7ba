"""Requests as programs of others send them, recorded from their runs, or built as their source builds them.

`recorded/*.json` has the bodies with every long text cut short; those below `messages` are Anthropic's.
The programs themselves run in tests/e2e/clients.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import fetch, send, sse_events, status_of
from vivace.client.warm import ServerAddress
from vivace.config import Settings

RECORDED = Path(__file__).parent / "recorded"
BODIES = [
    pytest.param(body, id=f"{file.stem}-{number}")
    for file in sorted(RECORDED.glob("*.json"))
    for number, body in enumerate(json.loads(file.read_text("utf-8")))
]
MESSAGES = json.loads((RECORDED / "messages" / "claude-code.json").read_text("utf-8"))
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
VIM_FIELDS = [
    "content",
    *(
        f"timings/{side}_{what}"
        for side in ("prompt", "predicted")
        for what in ("n", "ms", "per_token_ms", "per_second")
    ),
    "truncated",
    "tokens_cached",
]
# Since its version with edits by instruction; `id_slot` is a slot of llama.cpp's server.
NEW_LLAMA_VIM = LLAMA_VIM | {"id_slot": 0, "stop": [], "top_p": 0.90, "response_fields": VIM_FIELDS}
LLAMA_VSCODE = {
    "input_prefix": PREFIX,
    "input_suffix": "\nprint(total)\n",
    "input_extra": [{"text": "import os", "filename": "other.py"}],
    "prompt": "    total = ",
    "n_predict": 128,
    "top_k": 40,
    "top_p": 0.99,
    "stream": False,
    "samplers": ["top_k", "top_p", "infill"],
    "cache_prompt": True,
    "n_indent": 4,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 500,
    "lora": [{"id": 0, "scale": 0.5}],
}
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


@pytest.mark.parametrize("body", MESSAGES)
def test_claude_code_is_answered_and_its_history_is_read_once(
    address: ServerAddress, body: dict[str, Any]
) -> None:
    """Marks move, the last message becomes a string, and the billing header differs: all was read before."""
    read = streamed_message(address, body)
    first, system, *_ = body["system"]
    header = first | {"text": f"{first['text'][:-10]} cch=0;"}
    asked = body["messages"][0]["content"]
    told = [{name: block[name] for name in ("type", "text")} for block in asked]
    answer = {"role": "assistant", "content": [{"type": "text", "text": "Hello there."}]}
    mark = {"cache_control": {"type": "ephemeral"}}
    more = {"role": "user", "content": [{"type": "text", "text": "And now?"} | mark]}
    history = [{"role": "user", "content": told}, *body["messages"][1:], answer, more]
    again = body | {"system": [header, system, *body["system"][2:]], "messages": history}
    cached = streamed_message(address, again)["cache_read_input_tokens"]
    assert read["input_tokens"] == 0, "it marks its blocks, so all that is read is put into a cache"
    known = read["cache_creation_input_tokens"] + read["cache_read_input_tokens"]
    assert known > 0
    assert cached >= known + len("Hello there.") - 4
    string = {"role": "user", "content": "And now?"}
    last = again | {"messages": [*history[:-1], string, answer, more], "tools": body["tools"]}
    assert streamed_message(address, last)["cache_read_input_tokens"] >= cached + len("And now?")


def streamed_message(address: ServerAddress, body: dict[str, Any]) -> dict[str, int]:
    """Ask as Claude Code does; return the usage of an answer that ended well."""
    headers = {"anthropic_version": "2023-06-01", "X_Claude_Code_Session_Id": "0"}
    events = sse_events(send(address, "POST", "/v1/messages?beta=true", body, **headers))
    assert events[-1] == {"type": "message_stop"}
    deltas = [event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta"]
    assert "".join(deltas) == "Hello there."
    assert events[-2]["delta"]["stop_reason"] == "end_turn"
    usage: dict[str, int] = events[-2]["usage"]
    return usage


def test_llama_vim_gets_the_fields_it_names(address: ServerAddress) -> None:
    """Their paths are the names in the answer, as in llama.cpp's; without names all of it comes."""
    status, answer = fetch(address, "POST", "/infill", LLAMA_VIM | {"response_fields": VIM_FIELDS})
    assert (status, answer["content"], sorted(answer)) == (200, "Hello there.", sorted(VIM_FIELDS))
    status, answer = fetch(address, "POST", "/infill", LLAMA_VIM)
    assert (status, answer["content"]) == (200, "Hello there.")
    assert answer["timings"]["predicted_n"] > 0


def test_llama_vim_reads_the_bytes(address: ServerAddress) -> None:
    """It looks for `"content":"` in the line, without a space, before it decodes the JSON."""
    answer = send(address, "POST", "/infill", NEW_LLAMA_VIM)
    data = answer.read()
    answer.vivace_connection.close()  # type: ignore[attr-defined]
    assert answer.status == 200
    assert data.startswith(b"{")
    assert b'"content":"' in data
    assert b"\n" not in data
    assert sorted(json.loads(data)) == sorted(VIM_FIELDS)


def test_llama_vscode_gets_a_suggestion(address: ServerAddress) -> None:
    """With the figures that it shows; its warm-up names no fields and asks for no stream."""
    status, answer = fetch(address, "POST", "/infill", LLAMA_VSCODE)
    assert (status, answer["content"], answer["truncated"]) == (200, "Hello there.", False)
    assert answer["tokens_cached"] >= 0
    assert {"prompt_n", "prompt_ms", "prompt_per_second"} <= answer["timings"].keys()
    assert {"predicted_n", "predicted_ms", "predicted_per_second"} <= answer["timings"].keys()
    warm_up = {name: value for name, value in WARM_UP.items() if name not in ("response_fields", "stream")}
    status, answer = fetch(address, "POST", "/infill", warm_up | {"t_max_prompt_ms": 500})
    assert (status, answer["content"]) == (200, "")


def test_llama_vim_edits_by_instruction(address: ServerAddress) -> None:
    """The warm-up while one types writes nothing; the edit behind it streams, and has been read before."""
    context = "".join(f"value_{number} = {number}\n" for number in range(40))
    system = {"role": "system", "content": f"You edit code.\n{context}"}
    empty, asked = ({"role": "user", "content": text} for text in ("", "INSTRUCTION: rename x"))
    warm_up = {"id_slot": 1, "samplers": [], "n_predict": 0, "cache_prompt": True, "response_fields": [""]}
    body = warm_up | {"messages": [system, empty], "stream": False}
    status, answer = fetch(address, "POST", "/v1/chat/completions", body)
    assert (status, answer["choices"][0]["message"]["content"] or "") == (200, "")
    assert answer["usage"]["completion_tokens"] == 0
    edit = {"id_slot": 1, "min_p": 0.1, "temperature": 0.1, "samplers": ["min_p", "temperature"]}
    body = edit | {"messages": [system, asked], "stream": False, "cache_prompt": True}
    status, answer = fetch(address, "POST", "/v1/chat/completions", body)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "Hello there.")
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > len(context) // 2
    streamed = send(address, "POST", "/v1/chat/completions", body | {"stream": True})
    lines = streamed.read().decode().splitlines()
    streamed.vivace_connection.close()  # type: ignore[attr-defined]
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert "".join(each["choices"][0]["delta"].get("content") or "" for each in chunks) == "Hello there."


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

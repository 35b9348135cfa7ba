"""`/v1/completions` with a suffix, and `/infill`: what editors ask for, against a real server."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError

from tests.server.serving import HANG_S, fetch, send, status_of, until
from vivace.client import warm
from vivace.client.warm import ServerAddress
from vivace.config import Settings, load_settings
from vivace.models.store import is_present, model_path
from vivace.protocol.shapes.outcomes import Outcome, TextDelta
from vivace.server.transport.routes.completions import up_to_a_line

PREFIX = "".join(f"value_{number} = {number}\n" for number in range(20)) + "total = "
SUFFIX = "\nprint(total)\n"


def complete(address: ServerAddress, **fields: Any) -> tuple[int, Any]:
    return fetch(address, "POST", "/v1/completions", {"prompt": PREFIX, "suffix": SUFFIX, **fields})


async def test_the_sdk_fills_a_gap(address: ServerAddress) -> None:
    """OpenAI's own SDK gets the text between prompt and suffix, whole or in parts that add up to it."""
    async with AsyncOpenAI(base_url=address.url, api_key=address.token, max_retries=0) as sdk:
        model = (await sdk.models.list()).data[0].id
        whole = await sdk.completions.create(model=model, prompt=PREFIX, suffix=SUFFIX, max_tokens=100)
        stream = await sdk.completions.create(
            model=model,
            prompt=PREFIX,
            suffix=SUFFIX,
            max_tokens=100,
            stream=True,
            stream_options={"include_usage": True},
        )
        parts = [part async for part in stream]
    assert whole.object == "text_completion"
    assert whole.choices[0].text == "Hello there."
    assert whole.choices[0].finish_reason == "stop"
    assert "".join(part.choices[0].text for part in parts[:-1]) == "Hello there."
    assert [part.choices[0].finish_reason for part in parts[-2:-1]] == ["stop"]
    assert whole.usage
    assert whole.usage.prompt_tokens == len(PREFIX) + len(SUFFIX) + 3, "three control tokens, else bytes"
    assert parts[-1].usage
    assert parts[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_max_tokens_and_stop(address: ServerAddress) -> None:
    """Both end the text, and say how; without a number there are 16 tokens, as at OpenAI."""
    _, cut = complete(address, max_tokens=5)
    assert (cut["choices"][0]["text"], cut["choices"][0]["finish_reason"]) == ("Hello", "length")
    _, stopped = complete(address, max_tokens=50, stop=["th", "\n"])
    assert (stopped["choices"][0]["text"], stopped["choices"][0]["finish_reason"]) == ("Hello ", "stop")
    _, usual = complete(address, prompt="a long one")
    assert usual["usage"]["completion_tokens"] == 16


def test_what_is_typed_on_is_all_that_is_read(address: ServerAddress) -> None:
    """The next letters cost a prefill of themselves; what stands behind the cursor is not read again."""
    complete(address, max_tokens=3)
    for typed in ("val", "value_1 + va", "value_1 + value_2\nprint(to"):
        _, next_one = complete(address, prompt=f"{PREFIX}{typed}", max_tokens=3)
        waterfall = next_one["vivace"]["waterfall"]
        assert waterfall["cached_tokens"] >= len(PREFIX + SUFFIX) - len(" = ")
        assert waterfall["new_tokens"] <= len(typed) + len(" = ") + 1


def test_what_was_suggested_is_drafted(address: ServerAddress) -> None:
    """Who types the beginning of a suggestion gets the rest of it in a few passes, and no other text."""
    prompt = f"drafted {PREFIX}"
    complete(address, prompt=prompt, max_tokens=50)
    _, rest = complete(address, prompt=f"{prompt}Hell", max_tokens=50)
    waterfall = rest["vivace"]["waterfall"]
    assert rest["choices"][0]["text"] == "o there."
    assert waterfall["draft_accepted"] + waterfall["draft_rejected"] > 0


def test_half_a_word_is_gone_on_with(address: ServerAddress) -> None:
    """The answer goes on behind the cursor, in the middle of a word too; what was there is not sent again."""
    prompt = f"{PREFIX}Hello th"
    _, whole = complete(address, prompt=prompt, max_tokens=3)
    assert (whole["choices"][0]["text"], whole["choices"][0]["finish_reason"]) == ("ere", "length")
    assert whole["usage"]["completion_tokens"] == 3
    assert whole["usage"]["prompt_tokens"] == len(prompt + SUFFIX) + 3
    _, stopped = complete(address, prompt=prompt, max_tokens=50, stop=["th", "."])
    assert stopped["choices"][0]["text"] == "Hello ", "a stop text before the cursor ends nothing"


def test_files_do_not_push_each_other_out(address: ServerAddress, served: Settings) -> None:
    """Letters typed in one file leave another one warm, and nothing piles up, in memory or on disk."""
    parked_bytes = status_of(served).engine.parked_bytes
    other = PREFIX.replace("value", "other")
    complete(address, prompt=other, max_tokens=2)
    for letter in range(8):
        complete(address, prompt=PREFIX + "x" * letter, max_tokens=2)
    _, back = complete(address, prompt=f"{other}y", max_tokens=2)
    assert back["vivace"]["waterfall"]["cached_tokens"] >= len(other)
    status = status_of(served).engine
    assert status.sessions <= 6
    assert status.parked_bytes == parked_bytes


def test_infill_as_llama_cpp_has_it(address: ServerAddress) -> None:
    """What llama.vim and llama.vscode send is understood, and their fields are in the answer."""
    body = {
        "id_slot": 0,
        "input_prefix": PREFIX,
        "input_suffix": SUFFIX,
        "input_extra": [],
        "prompt": "va",
        "n_predict": 128,
        "stop": [],
        "samplers": ["top_k", "infill"],
        "cache_prompt": True,
        "t_max_predict_ms": 500,
        "stream": False,
    }
    status, answer = fetch(address, "POST", "/infill", body)
    assert (status, answer["content"], answer["stop"]) == (200, "Hello there.", True)
    assert answer["timings"]["predicted_n"] == answer["tokens_predicted"]
    status, warmed = fetch(address, "POST", "/infill", body | {"n_predict": 0})
    assert (status, warmed["content"], warmed["tokens_predicted"]) == (200, "", 0)


def test_marks_in_the_prompt_are_read(address: ServerAddress) -> None:
    """Editors that write Qwen's marks into the prompt themselves get the same answer."""
    marked = f"<|fim_prefix|>{PREFIX}<|fim_suffix|>{SUFFIX}<|fim_middle|>"
    _, plain = complete(address, max_tokens=50)
    _, answer = fetch(address, "POST", "/v1/completions", {"prompt": marked, "max_tokens": 50})
    assert answer["choices"][0]["text"] == plain["choices"][0]["text"]
    assert answer["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]


def test_a_client_that_goes_away_ends_it(address: ServerAddress, served: Settings) -> None:
    """The next key closes the connection: the turn ends at once, and the next one is warm."""
    body = {"prompt": f"long {PREFIX}", "suffix": SUFFIX, "max_tokens": 2000, "stream": True}
    answer = send(address, "POST", "/v1/completions", body)
    assert answer.read(6) == b"data: "
    assert status_of(served).engine.turns == 1
    answer.vivace_connection.close()  # type: ignore[attr-defined]
    answer.close()
    until(lambda: status_of(served).engine.turns == 0)
    _, again = complete(address, prompt=f"long {PREFIX}1", max_tokens=2)
    assert again["vivace"]["waterfall"]["cached_tokens"] >= len(PREFIX)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"best_of": 3}, "best_of"),
        ({"echo": True}, "echo"),
        ({"logprobs": 1}, "logprobs"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"temperature": 9}, "temperature"),
    ],
)
def test_what_is_refused_is_named(address: ServerAddress, fields: dict[str, Any], param: str) -> None:
    """A field that we would have to obey and cannot is a 400 with its name."""
    status, body = complete(address, **fields)
    assert (status, body["error"]["param"]) == (400, param)


def test_infill_is_no_field_of_responses(address: ServerAddress) -> None:
    """What is internal cannot be sent."""
    body = {"input": "x", "infill": {"prefix": "a"}}
    status, answer = fetch(address, "POST", "/v1/responses", body)
    assert (status, answer["error"]["param"]) == (400, "infill")


def test_a_prompt_that_is_too_long_is_refused(address: ServerAddress) -> None:
    """A prompt without a gap is never cut in silence."""
    body = {"prompt": "x" * 9000, "max_tokens": 2}
    status, answer = fetch(address, "POST", "/v1/completions", body)
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    status, _ = fetch(address, "POST", "/v1/completions", body | {"suffix": "y"})
    assert status == 200


async def test_a_model_without_the_tokens_says_so(smol_address: ServerAddress) -> None:
    """SmolLM2 cannot fill a gap: a 400 that says what can; without a suffix the text goes on."""
    async with AsyncOpenAI(base_url=smol_address.url, api_key=smol_address.token, max_retries=0) as sdk:
        model = (await sdk.models.list()).data[0].id
        with pytest.raises(BadRequestError, match="cannot fill in the middle"):
            await sdk.completions.create(model=model, prompt="a", suffix="b")
        goes_on = await sdk.completions.create(model=model, prompt="one, two, three,", max_tokens=4)
    assert goes_on.choices[0].text.startswith(" four")


@pytest.mark.thorough
def test_the_default_model_fills_a_gap(start: Callable[..., Settings]) -> None:
    """Qwen2.5-Coder writes the expression that stands between `return` and the next function."""
    mine = load_settings()
    if not is_present(mine, mine.model):
        pytest.skip("the default model is not here")
    address = warm.ensure_server(start(model=str(model_path(mine, mine.model)), tune="never"))
    before = "def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n    return "
    behind = "\n\n\ndef multiply(a, b):\n    return a * b\n"
    body = {"prompt": before, "suffix": behind, "max_tokens": 12, "stop": ["\n"]}
    _, answer = fetch(address, "POST", "/v1/completions", body)
    assert answer["choices"][0]["text"].strip() == "a - b", json.dumps(answer)


@dataclass
class Said:
    """A turn that says these texts, and notes that it was interrupted."""

    texts: list[str]
    is_interrupted: bool = False

    async def outcomes(self) -> AsyncIterator[Outcome]:
        for text in self.texts:
            yield TextDelta(text)

    def interrupt(self) -> None:
        self.is_interrupted = True


@pytest.mark.parametrize(
    ("limit_s", "expected"), [(0.0, "a b\n"), (HANG_S, "a b\n  c\nd")], ids=["late", "in time"]
)
async def test_a_line_that_ends_late_is_the_last(limit_s: float, expected: str) -> None:
    """`t_max_predict_ms`: the text ends with a line once the time is over, and never within a line."""
    turn = Said(["a", " b\n  c", "\nd"])
    texts = [outcome.delta async for outcome in up_to_a_line(turn, limit_s)]  # type: ignore[arg-type]
    assert ("".join(texts), turn.is_interrupted) == (expected, limit_s == 0.0)

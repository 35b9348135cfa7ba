"""131,072 tokens on the GPU: whether the model still finds one line there, how fast it is, how soon it stops.

Owns the prompt (real code with one function hidden in it) and the three questions. Needs a GPU.
"""

import statistics
import time
from pathlib import Path
from typing import Any

import msgspec

from vivace.bench.engine.engine_process import EngineProcess
from vivace.bench.gpu.run import make_job
from vivace.engine.runners.cuda.model.vocabulary import GgufVocabulary
from vivace.engine.runners.cuda.weights.gguf_file import GgufFile
from vivace.engine.wire.frames import Append, Generate, Interrupt

LONG_TOKENS = 126_000
SESSION_TOKENS = 131_072
ANSWER = "7346"
HIDDEN = f'\n\ndef session_retry_limit():\n    """How often to ask again."""\n    return {ANSWER}\n\n\n'
QUESTION = "What number does session_retry_limit return? Say the number and nothing else."
MIN_DECODED_TOKENS = 32
DEPTHS = (0.1, 0.5, 0.9)
WAITS_S = (0.02, 0.2, 0.5, 0.8, 1.2)  # from the prompt to the interrupt


class Long(msgspec.Struct, frozen=True):
    """Prompts with the function at each of DEPTHS, already tokenized."""

    prompts: list[list[int]]


def make_long(rows: Path, model: Path) -> Long:
    from vivace.models.families.base import Message, OutputSpec
    from vivace.models.families.qwen25 import Qwen25
    from vivace.models.tokenizer import GgufTokenizer

    tokenizer = GgufTokenizer(model)
    template = Qwen25(tokenizer)
    read = [msgspec.json.decode(line) for line in rows.read_text("utf-8").splitlines()]
    code = tokenizer.encode("\n\n".join(row["before"] for row in read))
    code = (code * (LONG_TOKENS // len(code) + 1))[:LONG_TOKENS]
    prompts = []
    for depth in DEPTHS:
        cut = round(len(code) * depth)
        before, after = (b"".join(map(tokenizer.token_bytes, part)) for part in (code[:cut], code[cut:]))
        text = before.decode(errors="ignore") + HIDDEN + after.decode(errors="ignore")
        prompt = template.render([Message("user", f"{text}\n\n{QUESTION}")])
        prompts.append(prompt + template.answer(prompt, OutputSpec()))
    return Long(prompts)


def measure_long(long: Long, model: Path, gpu_folder: Path, **wishes: Any) -> dict[str, Any]:
    room = {"context_tokens": SESSION_TOKENS, "session_tokens": SESSION_TOKENS}
    job = msgspec.structs.replace(make_job(model, gpu_folder, 8), **room, **wishes)
    file = GgufFile(model)
    words = GgufVocabulary(file.fields, model.name)
    with EngineProcess(job) as engine:
        found: dict[str, Any] = {"tokens": [len(prompt) for prompt in long.prompts], "answers": []}
        for prompt in long.prompts:
            with engine.session(tenant=str(len(found["answers"]))) as session:
                turn = engine.run(Generate(session, "", prompt, max_tokens=12))
                found["answers"].append(
                    b"".join(map(words.token_bytes, turn.tokens)).decode(errors="replace")
                )
                found["first_token_s"] = round(turn.first_token_ms / 1e3, 2)
                code = Generate(session, "", prompt[1000:1400], max_tokens=128, use_drafts=False)
                free = engine.run(code)
                if len(free.tokens) > MIN_DECODED_TOKENS:  # a text that ends at once cannot be timed
                    found["tokens_per_s"] = round(1e3 / free.token_ms, 1)
        found["stop_ms"] = [round(_stop_ms(engine, long.prompts[0], wait), 1) for wait in WAITS_S]
        found["stop_ms_median"] = statistics.median(found["stop_ms"])
    file.close()
    return found


def _stop_ms(engine: EngineProcess, prompt: list[int], wait_s: float) -> float:
    """Return milliseconds from an interrupt during prefill to the turn's end."""
    with engine.session(tenant=f"stopped after {wait_s}") as session:
        turn = engine.begin(Append(session, "", prompt))
        time.sleep(wait_s)
        asked = time.perf_counter()
        engine.send(Interrupt(turn.name))
        return (engine.finish(turn).ended_s - asked) * 1e3

"""The peer's process: llama-cpp-python's `Llama`, asked over stdin and stdout, one JSON object a line.

    python -m vivace.bench.engine.peer_process '{"path": …}'

Owns how the peer is called, in the way that is best for it: `Llama.generate` hands out tokens without the
detokenizing that its completions do. Its defaults are kept, but for the threads. Ends when stdin does.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import IO, Any

import msgspec
from llama_cpp import Llama
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from vivace.bench.engine.peer import PeerJob, PeerReply, PeerRequest


def load(job: PeerJob) -> Llama:
    """Load the model. With lookup, set `logits_all`: version 0.3.36 fails after 512 tokens without it."""
    return Llama(
        job.path,
        n_ctx=job.context_tokens,
        n_threads=job.threads,
        n_threads_batch=job.threads,
        logits_all=job.has_lookup,
        verbose=False,
    )


def generate(llama: Any, ask: PeerRequest) -> PeerReply:
    """Time one generation. Evaluate the ready part of the prompt before the clock starts."""
    tokens: list[int] = []
    arrived_ms: list[float] = []
    tail = b""
    llama.draft_model = (
        LlamaPromptLookupDecoding(num_pred_tokens=ask.lookup_tokens) if ask.lookup_tokens else None
    )
    make_ready(llama, ask.tokens[: ask.ready_tokens])
    began = time.perf_counter()
    for token in llama.generate(ask.tokens, temp=0.0):
        arrived_ms.append((time.perf_counter() - began) * 1e3)
        tokens.append(token)
        tail = (tail + llama.detokenize([token]))[-256:]
        is_stopped = token in ask.end_tokens or any(stop.encode() in tail for stop in ask.stop)
        if is_stopped or len(tokens) == ask.max_tokens:
            break
    return PeerReply(tokens, arrived_ms)


def make_ready(llama: Any, tokens: list[int]) -> None:
    """Put exactly `tokens` into the KV; what is there already of their beginning stays."""
    held = llama.input_ids[: llama.n_tokens].tolist()
    same = next(
        (n for n, (a, b) in enumerate(zip(held, tokens, strict=False)) if a != b), min(len(held), len(tokens))
    )
    llama.n_tokens = same
    if tokens[same:]:
        llama.eval(tokens[same:])


def requests(stream: IO[bytes]) -> Iterator[PeerRequest]:
    for line in stream:
        yield msgspec.json.decode(line, type=PeerRequest)


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the command's: it ends us
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever llama.cpp prints must not get among the answers

    def answer(reply: PeerReply) -> None:
        answers.write(msgspec.json.encode(reply) + b"\n")
        answers.flush()

    llama = load(msgspec.json.decode(sys.argv[1], type=PeerJob))
    answer(PeerReply())
    for ask in requests(sys.stdin.buffer):
        try:
            answer(generate(llama, ask))
        except (RuntimeError, ValueError) as error:
            answer(PeerReply(error=str(error)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

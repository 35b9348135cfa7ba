"""Time one variant of the weights in the engine's own runner, and score a sample text with it.

Owns the calls into llama.cpp that only the tuner needs. Does not judge the results (`choose`, `formats`).
Runs in a child process.
"""

import ctypes
import os
import time
from importlib.resources import files
from pathlib import Path

import llama_cpp as lc
import numpy as np

from vivace.engine.runners.base import Span
from vivace.engine.runners.llamacpp import LlamaRunner
from vivace.engine.tuning.children.wire import Description, Requantise, Scores, Times
from vivace.errors import VivaceError
from vivace.models.gguf_vocab import load_model
from vivace.models.tokenizer import GgufTokenizer

CONTEXT_TOKENS = 2048
READ_TOKENS = 64  # of the sample in a pass: the kernels that verify drafts
UNREAD_TOKENS = 16  # at the very beginning a model knows nothing, and rounding makes large differences
_NAMES = {
    number: name.removeprefix("LLAMA_FTYPE_MOSTLY_")
    for name, number in vars(lc).items()
    if name.startswith("LLAMA_FTYPE_MOSTLY_")
}


class TimedRunner:
    def __init__(self, path: str, threads: int, *, use_extra_bufts: bool) -> None:
        self._path = Path(path)
        self._runner = LlamaRunner(
            self._path, context_tokens=CONTEXT_TOKENS, threads=threads, use_extra_bufts=use_extra_bufts
        )
        vocab = self._runner.info.vocab_size
        self._tokens = [(100 + 37 * n) % min(5000, vocab) for n in range(CONTEXT_TOKENS)]  # any will do
        self._fed = 0

    def prefill(self, tokens: int, chunk_tokens: int) -> Times:
        self._runner.trim(0, 0)
        self._fed = tokens
        spans = [Span(0, at, self._tokens[at : at + chunk_tokens]) for at in range(0, tokens, chunk_tokens)]
        return Times([sum(self._time(span) for span in spans)])

    def passes(self, sizes: list[int]) -> Times:
        times = []
        for size in sizes:
            self._runner.trim(0, self._fed)
            times.append(self._time(Span(0, self._fed, self._tokens[self._fed :][:size], want=size)))
        return Times(times)

    def _time(self, span: Span) -> float:
        began = time.perf_counter()
        self._runner.forward([span])
        return (time.perf_counter() - began) * 1e3

    def read(self) -> Scores:
        text = (files("vivace.engine.tuning") / "sample.txt").read_text("utf-8")
        tokens = GgufTokenizer(self._path).encode(text)[:CONTEXT_TOKENS]
        logprobs: list[float] = []
        choices: list[int] = []
        self._runner.trim(0, 0)
        for at in range(0, len(tokens) - 1, READ_TOKENS):
            part = tokens[at : at + READ_TOKENS]
            rows = self._runner.forward([Span(0, at, part, want=len(part))])
            for row, following in zip(rows, tokens[at + 1 : at + 1 + READ_TOKENS], strict=False):
                highest = row.max()
                total = np.log(np.exp(row - highest, dtype=np.float64).sum())
                logprobs.append(float(row[following] - highest - total))
                choices.append(int(row.argmax()))
        self._runner.trim(0, 0)
        return Scores(logprobs[UNREAD_TOKENS:], choices[UNREAD_TOKENS:])


def describe(path: str) -> Description:
    model = load_model(Path(path), use_extra_bufts=False)
    try:
        return Description(
            format=_NAMES.get(lc.llama_model_ftype(model), ""),
            weight_bytes=lc.llama_model_size(model),
            parameters=lc.llama_model_n_params(model),
        )
    finally:
        lc.llama_model_free(model)


def requantise(job: Requantise) -> None:
    load_model(Path(job.source), vocab_only=True)  # says in our words if it is no model; silences llama.cpp
    params = lc.llama_model_quantize_default_params()
    params.ftype, params.nthread, params.allow_requantize = job.file_type, job.threads, True
    status = lc.llama_model_quantize(
        os.fsencode(job.source), os.fsencode(job.target), ctypes.byref(params)
    )  # returns 1 for everything that can go wrong
    if status != 0:
        raise VivaceError("llama.cpp could not write it")

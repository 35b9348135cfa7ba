"""llama.cpp through its low-level C API: batches, sequence ids, logits. CPU and Metal.

Owns the loaded model, one context with a unified KV, and the batch buffer. Does not own who runs when.
"""

import ctypes
import logging
from collections.abc import Sequence
from pathlib import Path

import llama_cpp as lc
import numpy as np

from vivace.engine.runners.base import Facts, KVFull, Logits, Span
from vivace.errors import StartError
from vivace.models.gguf_vocab import end_tokens, load_model, piece_of

BATCH_TOKENS = 512  # the most one pass takes: candidates are scored together in one
SEQUENCES = 64
_NO_KV_SLOT = 1

log = logging.getLogger(__name__)


class LlamaRunner:
    def __init__(self, path: Path, *, context_tokens: int, threads: int) -> None:
        self._model = load_model(path)
        self._context = _make_context(self._model, context_tokens, threads)
        self._memory = lc.llama_get_memory(self._context)
        self._vocab = lc.llama_model_get_vocab(self._model)
        self._batch = lc.llama_batch_init(BATCH_TOKENS, 0, 1)
        self.facts = Facts(
            name=path.stem,
            context_tokens=lc.llama_n_ctx(self._context),
            trained_tokens=lc.llama_model_n_ctx_train(self._model),
            sequences=SEQUENCES,
            vocab_size=lc.llama_vocab_n_tokens(self._vocab),
            end_tokens=end_tokens(self._vocab),
            threads=threads,
        )

    def forward(self, spans: Sequence[Span]) -> Logits:
        wanted = self._fill_batch(spans)
        status = lc.llama_decode(self._context, self._batch)
        if status == _NO_KV_SLOT:
            raise KVFull
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        return self._logits(wanted)

    def _fill_batch(self, spans: Sequence[Span]) -> list[int]:
        """Write the spans into the C batch; return the batch rows whose logits are wanted."""
        batch, row, wanted = self._batch, 0, []
        token, pos, n_seq, seq_id, output = batch.token, batch.pos, batch.n_seq_id, batch.seq_id, batch.logits
        for span in spans:
            first_wanted = len(span.tokens) - span.want
            for offset, value in enumerate(span.tokens):
                token[row], pos[row], n_seq[row] = value, span.start + offset, 1
                seq_id[row][0] = span.seq
                output[row] = offset >= first_wanted
                if offset >= first_wanted:
                    wanted.append(row)
                row += 1
        assert 0 < row <= BATCH_TOKENS, row
        batch.n_tokens = row
        return wanted

    def _logits(self, rows: list[int]) -> Logits:
        """A view for one row (the decode path: no 600 KB copy a token), a copy for several."""
        vocab = self.facts.vocab_size
        views = [np.ctypeslib.as_array(lc.llama_get_logits_ith(self._context, r), (vocab,)) for r in rows]
        if len(views) == 1:
            return views[0].reshape(1, vocab)
        return np.stack(views) if views else np.empty((0, vocab), np.float32)

    def trim(self, seq: int, length: int) -> None:
        lc.llama_memory_seq_rm(self._memory, seq, length, -1)

    def share(self, source: int, target: int, length: int) -> None:
        lc.llama_memory_seq_rm(self._memory, target, 0, -1)
        lc.llama_memory_seq_cp(self._memory, source, target, 0, length)

    def piece(self, token: int) -> bytes:
        return piece_of(self._vocab, token)

    def close(self) -> None:
        lc.llama_batch_free(self._batch)
        lc.llama_free(self._context)
        lc.llama_model_free(self._model)


def _make_context(model: ctypes.c_void_p, context_tokens: int, threads: int) -> ctypes.c_void_p:
    params = lc.llama_context_default_params()
    params.n_ctx = context_tokens
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.n_seq_max = SEQUENCES
    params.kv_unified = True  # one pool of cells: a fork shares its prefix instead of copying it
    params.flash_attn_type = lc.LLAMA_FLASH_ATTN_TYPE_ENABLED  # skips other sessions' cells in the pool
    params.n_threads = params.n_threads_batch = threads
    params.no_perf = True
    context: ctypes.c_void_p | None = lc.llama_init_from_model(model, params)
    if not context:
        raise StartError(
            f"llama.cpp could not make a context of {context_tokens} tokens.",
            "Set a smaller context_tokens in config.toml, or free some memory.",
        )
    return context

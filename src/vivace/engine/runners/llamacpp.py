"""llama.cpp through its low-level C API: batches, sequence ids, logits. On the CPU or on a GPU that it knows.

Owns the loaded model, one context with a unified KV, and the batch buffer. Does not own scheduling, nor which
device computes (`devices.ranking`).
"""

import ctypes
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import llama_cpp as lc
import numpy as np

from vivace.engine.runners.base import (
    Checkpoint,
    KVFull,
    KVState,
    Logits,
    MemoryKind,
    ModelInfo,
    ShouldStop,
    Span,
    Stopped,
    TellRead,
)
from vivace.engine.runners.ggml import GgmlDevice
from vivace.engine.runners.offload import Offload, plan_offload, read_size
from vivace.engine.runners.recurrent import SEQUENCES, numbers_of, recurrent_sequences
from vivace.errors import StartError
from vivace.models.gguf_vocab import end_tokens, load_model, piece_of

BATCH_TOKENS = 512  # the most tokens of one pass
DRAFT_TOKENS = 63
ABORT_CHECK_S = 0.005  # between two calls of `should_stop`: a pass has 600 operations, most of them short
_NO_KV_SLOT, _ABORTED = 1, 2
_PARTIAL = lc.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY  # what of a sequence cannot be cut


class LlamaGpu(NamedTuple):
    """A GPU of llama.cpp's, for a runner that is to use it."""

    device: GgmlDevice
    kind: str  # cuda, vulkan or metal
    name: str  # as the setting `device` calls it: cuda:0
    context_tokens: int = 0  # KV cells; 0: what half of its free memory holds


class LlamaRunner:
    def __init__(
        self,
        path: Path,
        *,
        context_tokens: int,
        threads: int,
        session_tokens: int = 0,
        use_extra_bufts: bool = True,
        gpu: LlamaGpu | None = None,
        tell: TellRead = lambda _read, _total: None,
    ) -> None:
        size = path.stat().st_size
        offload = _plan(path, gpu, max(context_tokens, session_tokens)) if gpu else None
        self._is_on_gpu = gpu is not None
        self._model = load_model(
            path,
            use_extra_bufts=use_extra_bufts and not gpu,
            device=gpu.device.handle if gpu else None,
            gpu_layers=offload.layers if offload else 0,
            on_progress=lambda share: tell(round(share * size), size),
        )
        trained = lc.llama_model_n_ctx_train(self._model)
        yarn_factor = _yarn_factor(self._model, session_tokens, trained)
        context_tokens = offload.context_tokens if offload else max(context_tokens, session_tokens)
        memory = _memory_kind(self._model)
        sequences = recurrent_sequences(numbers_of(self._model)) if memory == "checkpoints" else SEQUENCES
        self._context = _make_context(self._model, context_tokens, sequences, threads, yarn_factor)
        self._memory = lc.llama_get_memory(self._context)
        self._window_tokens = lc.llama_model_n_swa(self._model)
        self._vocab = lc.llama_model_get_vocab(self._model)
        self._batch = lc.llama_batch_init(BATCH_TOKENS, 0, 1)
        self._should_stop: ShouldStop | None = None
        self._abort_callback = lc.ggml_abort_callback(self._abort_requested)  # must outlive the context
        self._next_abort_check = 0.0
        self._abort_error: Exception | None = None  # raised by `should_stop`
        self.info = ModelInfo(
            name=path.stem,
            context_tokens=lc.llama_n_ctx(self._context),
            trained_tokens=trained,
            sequences=sequences,
            vocab_size=lc.llama_vocab_n_tokens(self._vocab),
            end_tokens=end_tokens(self._vocab),
            threads=threads,
            yarn_factor=yarn_factor,
            memory=memory,
            draft_tokens=DRAFT_TOKENS,
            can_stop=gpu is None,  # only the CPU's part of llama.cpp asks the abort callback
            kv_format=f"llama.cpp {lc.__version__} {path.name} {_identity(path)} yarn {yarn_factor:g}",
            device=gpu.kind if gpu else "cpu",
            place=f"llama.cpp on {gpu.device.description} ({gpu.name}), {offload}"
            if gpu
            else "llama.cpp on the CPU",
        )
        if gpu:
            print(f"{path.name}: {self.info.place}, {context_tokens:,} KV cells", file=sys.stderr)

    def forward(self, spans: Sequence[Span], should_stop: ShouldStop | None = None) -> Logits:
        wanted = self._fill_batch(spans)
        self._set_should_stop(should_stop)
        status = lc.llama_decode(self._context, self._batch)
        if status == _NO_KV_SLOT:
            raise KVFull
        if status == _ABORTED:  # llama.cpp has taken the tokens of this pass out of the KV again
            if self.info.memory == "checkpoints":  # which it could not do
                for span in spans:
                    lc.llama_memory_seq_rm(self._memory, span.seq, 0, -1)
            error, self._abort_error = self._abort_error, None
            raise error or Stopped
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        if self._is_on_gpu:  # it returns before the GPU is done: who measures passes must not be misled
            lc.llama_synchronize(self._context)
        return self._logits(wanted)

    def _set_should_stop(self, should_stop: ShouldStop | None) -> None:
        """Set the abort callback, which llama.cpp calls between the operations of its graph."""
        if self._is_on_gpu:
            return
        if should_stop is None:
            if self._should_stop is not None:
                lc.llama_set_abort_callback(self._context, lc.ggml_abort_callback(), None)
        elif self._should_stop is None:
            lc.llama_set_abort_callback(self._context, self._abort_callback, None)
        self._should_stop = should_stop

    def _abort_requested(self, _data: ctypes.c_void_p) -> bool:
        now = time.perf_counter()
        if now < self._next_abort_check or self._should_stop is None:
            return False
        self._next_abort_check = now + ABORT_CHECK_S
        try:
            return self._should_stop()
        except Exception as error:  # noqa: BLE001 - C has no exceptions: `forward` raises it
            self._abort_error = error
            return True

    def _fill_batch(self, spans: Sequence[Span]) -> int:
        """Write the spans into the C batch; return how many rows of logits are wanted."""
        batch, row = self._batch, 0
        token, pos, n_seq, seq_id, output = batch.token, batch.pos, batch.n_seq_id, batch.seq_id, batch.logits
        for span in spans:
            first_wanted = len(span.tokens) - span.want
            for offset, value in enumerate(span.tokens):
                token[row], pos[row], n_seq[row] = value, span.start + offset, 1
                seq_id[row][0] = span.seq
                output[row] = offset >= first_wanted
                row += 1
        assert 0 < row <= BATCH_TOKENS, row
        batch.n_tokens = row
        return sum(span.want for span in spans)

    def _logits(self, wanted: int) -> Logits:
        """Return a view of all rows: a copy would be 600 KB for each row."""
        vocab = self.info.vocab_size
        if not wanted:
            return np.empty((0, vocab), np.float32)
        return np.ctypeslib.as_array(lc.llama_get_logits(self._context), (wanted, vocab))

    def trim(self, seq: int, length: int) -> int:
        if length and self.can_cut(seq, length) and lc.llama_memory_seq_rm(self._memory, seq, length, -1):
            return length
        lc.llama_memory_seq_rm(self._memory, seq, 0, -1)
        return 0

    def share(self, source: int, target: int, length: int) -> int:
        lc.llama_memory_seq_rm(self._memory, target, 0, -1)
        if not self.can_cut(source, length):
            return 0
        self._copy(source, target, length)
        return length

    def _copy(self, source: int, target: int, length: int) -> None:
        """Copy a sequence up to a length; with a recurrent state whole, since llama.cpp may refuse less."""
        end = -1 if self.info.memory == "checkpoints" else length
        lc.llama_memory_seq_cp(self._memory, source, target, 0, end)

    def can_cut(self, seq: int, length: int) -> bool:
        """Return whether a sequence still holds all that the model needs to go on from `length`.

        llama.cpp removes and copies without a word where it does not: other tokens would follow.
        """
        match self.info.memory:
            case "exact":
                return True
            case "checkpoints":
                return bool(lc.llama_memory_seq_pos_max(self._memory, seq) == length - 1)
            case "bounded":
                first = lc.llama_memory_seq_pos_min(self._memory, seq)
                return bool(0 <= first <= max(0, length - self._window_tokens))

    def checkpoint(self, seq: int, length: int) -> Checkpoint:
        size = lc.llama_state_seq_get_size_ext(self._context, seq, _PARTIAL)
        state = bytearray(size)
        written = lc.llama_state_seq_get_data_ext(self._context, _pointer(state), size, seq, _PARTIAL)
        assert written == size, (written, size)
        return Checkpoint(length, state)

    def restore(self, source: int, target: int, checkpoint: Checkpoint) -> int:
        length, state = checkpoint
        if source != target:
            lc.llama_memory_seq_rm(self._memory, target, 0, -1)
            self._copy(source, target, length)
        is_set = lc.llama_state_seq_set_data_ext(self._context, _pointer(state), len(state), target, _PARTIAL)
        # The rest is cut only now: a recurrent state refuses as long as it is one of a later length.
        if is_set:
            lc.llama_memory_seq_rm(self._memory, target, length, -1)
            if lc.llama_memory_seq_pos_max(self._memory, target) == length - 1:
                return length
        lc.llama_memory_seq_rm(self._memory, target, 0, -1)
        return 0

    def save(self, seq: int) -> bytes:
        size = lc.llama_state_seq_get_size(self._context, seq)
        state = bytearray(size)
        buffer = (ctypes.c_uint8 * size).from_buffer(state)
        written = lc.llama_state_seq_get_data(self._context, buffer, size, seq)
        del buffer
        return bytes(memoryview(state)[:written])

    def load(self, seq: int, state: KVState) -> None:
        assert isinstance(state, bytes)
        buffer = ctypes.cast(ctypes.c_char_p(state), ctypes.POINTER(ctypes.c_uint8))
        if lc.llama_state_seq_set_data(self._context, buffer, len(state), seq) == 0:
            lc.llama_memory_seq_rm(self._memory, seq, 0, -1)
            raise KVFull

    def known_costs(self) -> dict[int, float]:
        return {}

    def token_bytes(self, token: int) -> bytes:
        return piece_of(self._vocab, token)

    def close(self) -> None:
        lc.llama_batch_free(self._batch)
        lc.llama_free(self._context)
        lc.llama_model_free(self._model)


def _pointer(state: bytes | bytearray) -> "ctypes._Pointer[ctypes.c_uint8]":
    """Return where these bytes are, for llama.cpp: they are not copied."""
    return np.frombuffer(state, np.uint8).ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


def _plan(path: Path, gpu: LlamaGpu, context_tokens: int) -> Offload:
    offload = plan_offload(read_size(path), gpu.device.free_bytes, context_tokens, gpu.context_tokens)
    if not offload.layers:
        raise StartError(
            f"The {gpu.device.description} has {gpu.device.free_bytes / 1e9:.1f} GB free: "
            f"not one layer of {path.name} fits.",
            "Set a smaller gpu_context_tokens in config.toml, or end other programs there.",
        )
    return offload


def _memory_kind(model: ctypes.c_void_p) -> MemoryKind:
    if lc.llama_model_is_recurrent(model) or lc.llama_model_is_hybrid(model):
        return "checkpoints"
    return "bounded" if lc.llama_model_n_swa(model) else "exact"


def _identity(path: Path) -> str:
    stat = path.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"


def _yarn_factor(model: ctypes.c_void_p, session_tokens: int, trained_tokens: int) -> float:
    """Return by how much YaRN must scale positions for sessions of this length; 1 if not at all.

    Only if the user asks for longer sessions: it changes every position, which costs a little quality.
    """
    if session_tokens <= trained_tokens:
        return 1.0
    if lc.llama_model_rope_type(model) == lc.LLAMA_ROPE_TYPE_NONE:
        raise StartError(
            f"This model cannot read more than the {trained_tokens} tokens that it was trained for.",
            "Set session_tokens to 0 in config.toml.",
        )
    return session_tokens / trained_tokens


def _make_context(
    model: ctypes.c_void_p, context_tokens: int, sequences: int, threads: int, yarn_factor: float
) -> ctypes.c_void_p:
    params = lc.llama_context_default_params()
    params.n_ctx = context_tokens
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.n_seq_max = sequences
    params.kv_unified = True  # one pool of cells: a fork shares its prefix instead of copying it
    params.flash_attn_type = lc.LLAMA_FLASH_ATTN_TYPE_ENABLED  # skips other sessions' cells in the pool
    params.n_threads = params.n_threads_batch = threads
    params.no_perf = True
    if yarn_factor > 1.0:
        params.rope_scaling_type = lc.LLAMA_ROPE_SCALING_TYPE_YARN
        params.rope_freq_scale = 1.0 / yarn_factor
        params.yarn_orig_ctx = lc.llama_model_n_ctx_train(model)
    context: ctypes.c_void_p | None = lc.llama_init_from_model(model, params)
    if not context:
        raise StartError(
            f"llama.cpp could not make a context of {context_tokens} tokens.",
            "Set a smaller context_tokens in config.toml, or free some memory.",
        )
    return context

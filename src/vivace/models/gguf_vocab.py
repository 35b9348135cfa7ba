"""The few llama.cpp calls that both the engine's runner and the server's tokenizer need.

Owns loading a GGUF file and asking its vocabulary. Does not own contexts, KV or chat templates.
"""

import contextlib
import ctypes
import functools
import re
import struct
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp as lc

from vivace.errors import StartError
from vivace.models.tokenizer import Marker, Vocabulary

_PIECE_BYTES = 256
_MARKERS = lc.LLAMA_TOKEN_ATTR_CONTROL | lc.LLAMA_TOKEN_ATTR_USER_DEFINED | lc.LLAMA_TOKEN_ATTR_UNKNOWN
_ERROR = 4  # GGML_LOG_LEVEL_ERROR
_probing = threading.local()  # `is_on` while a load that fails is an answer
_DIGITS = re.compile(rb"\d+")
# What llama.cpp calls an error and is none: a pass that was stopped, a KV that is full. The runner says so.
_EXPECTED = (
    *(b"ret = 2", b"failed with error 1\n", b"compute status: 1\n"),
    *(b"failed to prepare", b"available cells", b"not enough cells", b"failed to restore kv cache"),
)


@functools.cache
def start_llama() -> Any:
    """Start llama.cpp once; of its log keep errors. Keep the callback: it must outlive every call."""
    printed: set[bytes] = set()

    @lc.llama_log_callback  # type: ignore[untyped-decorator]
    def log(level: int, text: bytes, _data: ctypes.c_void_p) -> None:
        kind = _DIGITS.sub(b"", text)
        is_expected = any(each in text for each in _EXPECTED) or getattr(_probing, "is_on", False)
        if level != _ERROR or kind in printed or is_expected:
            return
        printed.add(kind)
        with contextlib.suppress(OSError, ValueError):  # nobody reads it
            print(f"llama.cpp: {text.decode('utf-8', 'replace').rstrip()}", file=sys.stderr, flush=True)

    lc.llama_log_set(log, ctypes.c_void_p(0))
    lc.llama_backend_init()
    return log


def load_model(
    path: Path,
    *,
    vocab_only: bool = False,
    use_extra_bufts: bool = True,
    device: int | None = None,
    gpu_layers: int = 0,
    on_progress: Callable[[float], None] | None = None,
) -> ctypes.c_void_p:
    """Load a GGUF file: on the CPU, or `gpu_layers` of it on a `device` of ggml's.

    `use_extra_bufts`: let llama.cpp repack the weights for this CPU's matrix instructions. `on_progress` is
    called with the share of the weights that is loaded.
    """
    start_llama()
    params = lc.llama_model_default_params()
    params.vocab_only = vocab_only
    params.use_extra_bufts = use_extra_bufts
    devices = (ctypes.c_void_p * 2)(device, None)  # llama.cpp reads it while it loads, up to the first None
    params.devices = ctypes.cast(devices, ctypes.c_void_p)
    params.n_gpu_layers = gpu_layers
    params.split_mode = lc.LLAMA_SPLIT_MODE_NONE if device else lc.LLAMA_SPLIT_MODE_LAYER
    params.main_gpu = 0
    if on_progress:

        @lc.llama_progress_callback  # type: ignore[untyped-decorator]
        def goes_on(share: float, _data: ctypes.c_void_p) -> bool:
            on_progress(share)
            return True

        params.progress_callback = goes_on  # its name keeps it while llama.cpp calls it
    model: ctypes.c_void_p | None = lc.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        raise StartError(
            f"llama.cpp could not load {path}.",
            "Remove it with `vivace models rm NAME` and pull it again, or check that it is a GGUF file.",
        )
    return model


def state_of(architecture: str) -> bool | None:
    """Return whether models of this architecture keep a state besides attention; None: llama.cpp knows none.

    The library has no list to ask, but refuses to load a file of an architecture that it does not know. So it
    is given a header of two fields, without vocabulary and weights.
    """
    fields = {"general.architecture": architecture, "tokenizer.ggml.model": "no_vocab"}
    texts = [text.encode() for field in fields.items() for text in field]
    packed = [struct.pack("<Q", len(text)) + text for text in texts]
    header = struct.pack("<4sIQQ", b"GGUF", 3, 0, len(fields))
    for name, value in zip(packed[::2], packed[1::2], strict=True):
        header += name + struct.pack("<I", 8) + value
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        file.write(header)
        file.flush()
        _probing.is_on = True
        try:
            model = load_model(Path(file.name), vocab_only=True)
        except StartError:
            return None
        finally:
            _probing.is_on = False
        try:
            return bool(lc.llama_model_is_recurrent(model) or lc.llama_model_is_hybrid(model))
        finally:
            lc.llama_model_free(model)


def tokenize(vocab: ctypes.c_void_p, text: bytes, *, special: bool) -> list[int]:
    """Return the tokens of `text`. `special`: names of control tokens become those tokens."""
    room = len(text) + 8
    buffer = (lc.llama_token * room)()
    count = lc.llama_tokenize(vocab, text, len(text), buffer, room, False, special)
    assert count >= 0, "a token never stands for less than a byte"
    return list(buffer[:count])


def piece_of(vocab: ctypes.c_void_p, token: int) -> bytes:
    buffer = ctypes.create_string_buffer(_PIECE_BYTES)
    count = lc.llama_token_to_piece(vocab, token, buffer, _PIECE_BYTES, 0, False)
    if count < 0:
        buffer = ctypes.create_string_buffer(-count)
        count = lc.llama_token_to_piece(vocab, token, buffer, -count, 0, False)
    return buffer.raw[:count]


def end_tokens(vocab: ctypes.c_void_p) -> frozenset[int]:
    size = lc.llama_vocab_n_tokens(vocab)
    return frozenset(token for token in range(size) if lc.llama_vocab_is_eog(vocab, token))


def is_marker(vocab: ctypes.c_void_p, token: int) -> bool:
    """Return whether the vocabulary says that a token stands for itself: by its kind, not its spelling."""
    return bool(lc.llama_vocab_get_attr(vocab, token) & _MARKERS) or lc.llama_vocab_is_eog(vocab, token)


def vocabulary(vocab: ctypes.c_void_p) -> Vocabulary:
    markers: dict[str, Marker] = {}
    for token in range(lc.llama_vocab_n_tokens(vocab)):
        kind = lc.llama_vocab_get_attr(vocab, token)
        if kind & _MARKERS and (name := _name(vocab, token)):
            markers[name] = Marker(
                token,
                is_control=not kind & lc.LLAMA_TOKEN_ATTR_USER_DEFINED,
                strips_left=bool(kind & lc.LLAMA_TOKEN_ATTR_LSTRIP),
                strips_right=bool(kind & lc.LLAMA_TOKEN_ATTR_RSTRIP),
            )
    bos, eos = lc.llama_vocab_bos(vocab), lc.llama_vocab_eos(vocab)
    begin = bos if lc.llama_vocab_get_add_bos(vocab) and bos >= 0 else None
    return Vocabulary(markers, begin, _name(vocab, bos), _name(vocab, eos))


def _name(vocab: ctypes.c_void_p, token: int) -> str:
    text = lc.llama_vocab_get_text(vocab, token) if token >= 0 else None
    return text.decode("utf-8", "replace") if text else ""

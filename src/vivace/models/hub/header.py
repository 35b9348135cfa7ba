"""The header of a GGUF file that is not here yet, read over the network a piece at a time.

Owns the layout of a header, bounded against hostile ones, and the few facts that we want of it before a
download. Reads the vocabulary only to pass over it. Does not talk to the hub: it is given a `read`.
"""

import struct
from collections.abc import Callable
from typing import Any

import msgspec

STRING, ARRAY = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
FIRST_BYTES = 1 << 16  # most answers begin with what decides: the architecture
PIECE_BYTES = 1 << 21
MOST_BYTES = 64 << 20  # a vocabulary of 256k tokens takes 10 MB
MOST_FIELDS = 4096
MOST_TENSORS = 1 << 16
MOST_TEXT_BYTES = 1 << 20

Read = Callable[[int, int], bytes]  # begin, end → the bytes between; fewer only at the file's end


class NotGguf(ValueError):
    """The file is no GGUF file, or one that nobody would make in good faith."""


class Header(msgspec.Struct, frozen=True):
    architecture: str = ""
    template: str = ""  # the chat template; "": none in the file
    context_tokens: int = 0
    experts: int = 0
    experts_used: int = 0
    expert_bytes: int = 0  # of all experts' tensors in this file
    tensor_bytes: int = 0  # of all tensors in this file
    window_tokens: int = 0  # that some layers attend to; 0: all layers attend to everything
    mtp_layers: int = 0  # that draft the next tokens
    kv_token_bytes: int = 0  # of KV for one token, in 16 bits; 0: the header does not say it simply

    @property
    def active_share(self) -> float:
        """Return the share of the weights that is read for one token."""
        if not self.experts or not self.experts_used or not self.tensor_bytes:
            return 1.0
        idle_bytes = self.expert_bytes * (1 - min(1.0, self.experts_used / self.experts))
        return 1.0 - idle_bytes / self.tensor_bytes


def read_header(read: Read, size_bytes: int) -> Header:
    """Read the header of a file of `size_bytes`; raise `NotGguf` if it has none."""
    return _Reader(read, size_bytes).header()


class _Reader:
    def __init__(self, read: Read, size_bytes: int) -> None:
        self._read = read
        self._size_bytes = size_bytes
        self._end = min(size_bytes, MOST_BYTES)
        self._bytes = bytearray()
        self._at = 0

    def header(self) -> Header:
        magic, version, tensors, count = self._numbers("4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise NotGguf("it does not begin as a GGUF file does")
        if count > MOST_FIELDS or tensors > MOST_TENSORS:
            raise NotGguf(f"it claims {count} fields and {tensors} tensors")
        fields: dict[str, object] = {}
        for _ in range(count):
            name = self._text()
            (kind,) = self._numbers("I")
            fields[name] = self._value(kind)
        header = _facts(fields)
        return self._with_tensors(header, tensors) if header.experts else header

    def _with_tensors(self, header: Header, count: int) -> Header:
        """Add how much of the file is experts. A tensor goes on to where the next one begins."""
        tensors = sorted(self._tensor() for _ in range(count))
        ends = [offset for offset, _ in tensors[1:]] + [max(0, self._size_bytes - self._at)]
        sizes = [(name, end - begin) for (begin, name), end in zip(tensors, ends, strict=False)]
        expert_bytes = sum(size for name, size in sizes if "_exps." in name)
        return msgspec.structs.replace(
            header, expert_bytes=expert_bytes, tensor_bytes=sum(size for _, size in sizes)
        )

    def _tensor(self) -> tuple[int, str]:
        name = self._text()
        (dimensions,) = self._numbers("I")
        self._pass_over(8 * dimensions)
        _, offset = self._numbers("IQ")
        return offset, name

    def _value(self, kind: int) -> object:
        """Return a number or a text; pass over an array and return None."""
        if kind == STRING:
            return self._text()
        if kind in _NUMBERS:
            return self._numbers(_NUMBERS[kind])[0]
        if kind != ARRAY:
            raise NotGguf(f"a field of kind {kind}")
        of, count = self._numbers("IQ")
        if of in _SIZES:
            self._pass_over(count * _SIZES[of])
        elif of == STRING:
            self._pass_over_texts(count)
        else:
            raise NotGguf("an array in an array")
        return None

    def _pass_over_texts(self, count: int) -> None:
        if count > MOST_BYTES // 8:
            raise NotGguf(f"an array of {count} texts")
        unpack = struct.Struct("<Q").unpack_from
        for _ in range(count):
            self._need(8)
            (length,) = unpack(self._bytes, self._at)
            self._at += 8
            self._pass_over(length)

    def _text(self) -> str:
        (length,) = self._numbers("Q")
        if length > MOST_TEXT_BYTES:
            raise NotGguf(f"a text of {length} bytes")
        self._need(length)
        begin, self._at = self._at, self._at + length
        return self._bytes[begin : self._at].decode("utf-8", "replace")

    def _numbers(self, form: str) -> tuple[Any, ...]:
        size = struct.calcsize("<" + form)
        self._need(size)
        found = struct.unpack_from("<" + form, self._bytes, self._at)
        self._at += size
        return found

    def _pass_over(self, size: int) -> None:
        self._at += size
        if self._at > self._end:
            raise NotGguf("its header goes past its end")

    def _need(self, size: int) -> None:
        """Have the next `size` bytes here."""
        if self._at + size > self._end:
            raise NotGguf("its header goes past its end")
        while self._at + size > len(self._bytes):
            begin = len(self._bytes)
            step = PIECE_BYTES if begin else FIRST_BYTES
            end = min(self._end, max(begin + step, self._at + size))
            piece = self._read(begin, end)
            if len(piece) != end - begin:
                raise NotGguf("it ends too early")
            self._bytes += piece


def _facts(fields: dict[str, object]) -> Header:
    architecture = str(fields.get("general.architecture") or "")

    def number(name: str) -> int:
        value = fields.get(f"{architecture}.{name}")
        return value if isinstance(value, int) and value >= 0 else 0

    return Header(
        architecture=architecture,
        template=str(fields.get("tokenizer.chat_template") or ""),
        context_tokens=number("context_length"),
        experts=number("expert_count"),
        experts_used=number("expert_used_count"),
        window_tokens=number("attention.sliding_window"),
        mtp_layers=number("nextn_predict_layers"),
        kv_token_bytes=_kv_token_bytes(number),
    )


def _kv_token_bytes(number: Callable[[str], int]) -> int:
    """Return the KV of a token: in each layer with attention a key and a value a head, or a latent."""
    layers = number("block_count") // (number("full_attention_interval") or 1)
    if latent := number("attention.kv_lora_rank"):
        return 2 * layers * (latent + number("rope.dimension_count"))
    width = number("embedding_length") // (number("attention.head_count") or 1)
    key, value = (number(f"attention.{part}_length") or width for part in ("key", "value"))
    return 2 * layers * number("attention.head_count_kv") * (key + value)

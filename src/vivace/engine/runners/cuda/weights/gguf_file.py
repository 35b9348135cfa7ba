"""The header of a GGUF file, read in a tenth of a second: its fields, and where each tensor lies.

The gguf package's own reader takes ten seconds for a vocabulary of 152k tokens. Owns the file's layout. Does
not know what fields and tensors mean.
"""

import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

from vivace.errors import StartError

_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_MAX_ITEMS = 1 << 26  # of an array; more is no vocabulary but a broken file


class Tensor(NamedTuple):
    name: str
    shape: tuple[int, ...]  # rows first, as in torch
    kind: int  # of its numbers, as gguf.GGMLQuantizationType counts them
    offset: int  # from the beginning of the data


class GgufFile:
    """Open until `close`. `fields` by name; arrays are lists, strings are str."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fields: dict[str, Any] = {}
        try:
            with path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._at = 0
            self.tensors = self._read_header()
        except (OSError, struct.error, UnicodeDecodeError, ValueError, KeyError) as error:
            raise StartError(
                f"{path.name} is no GGUF file that can be read: {error}.",
                "Remove it with `vivace models rm NAME` and pull it again.",
            ) from error
        alignment = int(self.fields.get("general.alignment", 32))
        self._data = -(-self._at // alignment) * alignment

    def close(self) -> None:
        self._bytes.close()

    def begin_of(self, tensor: Tensor) -> int:
        """Return where the tensor's bytes begin in the file."""
        return self._data + tensor.offset

    def _read_header(self) -> list[Tensor]:
        magic, version, tensors, fields = self._numbers("4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"it begins with {magic!r}, version {version}")
        for _ in range(fields):
            name = self._string()
            (kind,) = self._numbers("I")
            self.fields[name] = self._value(kind)
        return [self._tensor() for _ in range(tensors)]

    def _tensor(self) -> Tensor:
        name = self._string()
        (dimensions,) = self._numbers("I")
        shape = self._numbers(f"{dimensions}Q")
        kind, offset = self._numbers("IQ")
        return Tensor(name, shape[::-1], kind, offset)

    def _numbers(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from("<" + form, self._bytes, self._at)
        self._at += struct.calcsize("<" + form)
        return found

    def _string(self) -> str:
        (length,) = self._numbers("Q")
        begin, self._at = self._at, self._at + length
        if self._at > len(self._bytes):
            raise ValueError("a text goes past its end")
        return self._bytes[begin : self._at].decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._numbers(_NUMBERS[kind])[0]
        of, count = self._numbers("IQ")
        if count > _MAX_ITEMS:
            raise ValueError(f"an array of {count} items")
        if of in _NUMBERS:
            return list(self._numbers(f"{count}{_NUMBERS[of]}"))
        return [self._value(of) for _ in range(count)]

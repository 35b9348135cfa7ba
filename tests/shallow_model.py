"""A GGUF file cut to its first layers: the real vocabulary, template and kernels, in a tenth of the time.

For tests of what happens around a model. What it says makes no sense: a test that reads the text takes the
whole model. Knows as much of the format as it takes to leave tensors out.
"""

import struct
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9
ALIGNMENT = 32


def cut(source: Path, target: Path, layers: int) -> Path:
    """Write the first `layers` layers of `source`, and all that is in no layer, to `target`."""
    with source.open("rb") as whole:
        magic, version, tensor_count, field_count = struct.unpack("<4sIQQ", whole.read(24))
        assert magic == b"GGUF"
        fields = b"".join(_field(whole, layers) for _ in range(field_count))
        tensors = [_tensor(whole) for _ in range(tensor_count)]
        begin = _aligned(whole.tell())
        ends = [*sorted(offset for _, _, offset in tensors), source.stat().st_size - begin]
        sizes = {offset: end - offset for offset, end in pairwise(ends)}
        kept = [tensor for tensor in tensors if _layer(tensor[0]) < layers]
        head, at = struct.pack("<4sIQQ", magic, version, len(kept), field_count) + fields, 0
        for _, shape, offset in kept:
            head, at = head + shape + struct.pack("<Q", at), at + _aligned(sizes[offset])
        with target.open("wb") as part:
            part.write(_padded(head))
            for _, _, offset in kept:
                whole.seek(begin + offset)
                part.write(_padded(whole.read(sizes[offset])))
    return target


def _layer(name: bytes) -> int:
    """Return the layer that a tensor belongs to, or -1 if it belongs to none."""
    return int(name.split(b".")[1]) if name.startswith(b"blk.") else -1


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _padded(data: bytes) -> bytes:
    return data.ljust(_aligned(len(data)), b"\0")


def _number(file: BinaryIO, form: str) -> int:
    number: int
    (number,) = struct.unpack(form, file.read(struct.calcsize(form)))
    return number


def _text(file: BinaryIO) -> bytes:
    return file.read(_number(file, "<Q"))


def _field(file: BinaryIO, layers: int) -> bytes:
    """Return the next field as it is written; the count of layers as it shall be."""
    begin = file.tell()
    name, kind = _text(file), _number(file, "<I")
    _skip(file, kind)
    end = file.tell()
    file.seek(begin)
    written = file.read(end - begin)
    return written[:-4] + struct.pack("<I", layers) if name.endswith(b".block_count") else written


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == STRING:
        _text(file)
    elif kind == ARRAY:
        inner, count = _number(file, "<I"), _number(file, "<Q")
        if inner in SCALAR_BYTES:
            file.seek(SCALAR_BYTES[inner] * count, 1)
        else:
            for _ in range(count):
                _skip(file, inner)
    else:
        file.seek(SCALAR_BYTES[kind], 1)


def _tensor(file: BinaryIO) -> tuple[bytes, bytes, int]:
    """Return a tensor's name, its entry without the offset, and the offset."""
    begin = file.tell()
    name = _text(file)
    file.seek(8 * _number(file, "<I") + 4, 1)
    end = file.tell()
    file.seek(begin)
    return name, file.read(end - begin), _number(file, "<Q")

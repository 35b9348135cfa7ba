"""Pages of the KV: shared until written, never lost, never held twice."""

import random

import pytest

pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from vivace.engine.runners.base import KVFull
from vivace.engine.runners.cuda.kv.pages import Pages


def test_what_sequences_read_is_what_they_wrote(seed: int) -> None:
    """Random writes, forks and trims on a small pool, against a plain list a sequence."""
    draw = random.Random(seed)
    memory: dict[int, list[int]] = {page: [0] * 64 for page in range(12)}
    pages = Pages(12, 4, lambda source, target: memory.__setitem__(target, list(memory[source])))
    texts: list[list[int]] = [[], [], [], []]
    for stamp in range(400):
        seq, other = draw.sample(range(4), 2)
        match draw.choice(["write", "write", "share", "trim"]):
            case "write":
                start, count = draw.randint(0, len(texts[seq])), draw.randint(1, 90)
                try:
                    pages.reserve(seq, start, start + count)
                except KVFull:
                    pages.trim(other, 0)
                    texts[other] = []
                    continue
                for at in range(start, start + count):
                    memory[pages.table(seq)[at // 64]][at % 64] = stamp
                texts[seq] = texts[seq][:start] + [stamp] * count
                pages.trim(seq, len(texts[seq]))
            case "share":
                length = draw.randint(0, len(texts[seq]))
                pages.share(seq, other, length)
                texts[other] = texts[seq][:length]
            case "trim":
                texts[seq] = texts[seq][: draw.randint(0, len(texts[seq]))]
                pages.trim(seq, len(texts[seq]))
        for each, text in enumerate(texts):
            found = [memory[pages.table(each)[at // 64]][at % 64] for at in range(len(text))]
            assert found == text
    for each in range(4):
        pages.trim(each, 0)
    assert pages.free_pages == 12

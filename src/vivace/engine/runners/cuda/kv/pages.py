"""Paged KV: pages of 64 tokens, shared copy-on-write between sequences.

Owns the page tables and the reference count of each page. With pages a fork costs no memory, no sequence
reserves what it may never use, and the attention finds a page with one load. Does not own what is in the
pages: the caller gives `copy_page`.
"""

from collections.abc import Callable

from vivace.engine.runners.base import KVFull
from vivace.engine.runners.cuda.model.shape import PAGE_TOKENS

CopyPage = Callable[[int, int], None]  # source, target


class Pages:
    def __init__(self, count: int, sequences: int, copy_page: CopyPage) -> None:
        self._free = list(range(count))[::-1]
        self._holders = [0] * count
        self._tables: list[list[int]] = [[] for _ in range(sequences)]
        self._copy_page = copy_page

    def table(self, seq: int) -> list[int]:
        """Return the pages of a sequence, in the order of its positions."""
        return self._tables[seq]

    @property
    def free_pages(self) -> int:
        return len(self._free)

    def reserve(self, seq: int, start: int, end: int) -> None:
        """Make positions start … end-1 writable: a page each, none of them shared. All or nothing."""
        table, first = self._tables[seq], start // PAGE_TOKENS
        missing = max(0, -(-end // PAGE_TOKENS) - len(table))
        shared = [i for i in range(first, len(table)) if self._holders[table[i]] > 1]
        if missing + len(shared) > len(self._free):
            raise KVFull
        for index in shared:
            page = self._take()
            self._copy_page(table[index], page)
            self._holders[table[index]] -= 1
            table[index] = page
        table += [self._take() for _ in range(missing)]

    def trim(self, seq: int, length: int) -> None:
        table, kept = self._tables[seq], -(-length // PAGE_TOKENS)
        for page in table[kept:]:
            self._drop(page)
        del table[kept:]

    def share(self, source: int, target: int, length: int) -> None:
        """Let `target` begin as `source` does; what its last page holds past `length` is never read."""
        kept = self._tables[source][: -(-length // PAGE_TOKENS)]
        for page in kept:
            self._holders[page] += 1
        self.trim(target, 0)
        self._tables[target] = list(kept)

    def _take(self) -> int:
        page = self._free.pop()
        self._holders[page] = 1
        return page

    def _drop(self, page: int) -> None:
        self._holders[page] -= 1
        if not self._holders[page]:
            self._free.append(page)

"""Paged KV: pages of 64 tokens, shared copy-on-write between sequences.

Owns the page tables, the reference count of each page, and which pages have the same contents in host memory:
those need no copy to be saved, and as long as nobody takes them, none to come back. With pages a fork costs
no memory, no sequence reserves what it may never use, and the attention finds a page with one load. Does not
own what is in the pages: the caller gives `copy_page`.
"""

from collections.abc import Callable, Sequence

from vivace.engine.runners.base import KVFull
from vivace.engine.runners.cuda.kv.host_memory import HostPage, Moment
from vivace.engine.runners.cuda.model.shape import PAGE_TOKENS

CopyPage = Callable[[int, int], None]  # source, target
Wait = Callable[[Moment], None]  # let what comes next wait for a copy


class Pages:
    def __init__(
        self, count: int, sequences: int, copy_page: CopyPage, wait: Wait = Moment.synchronize
    ) -> None:
        self._free = dict.fromkeys(range(count)[::-1])  # the last is taken first
        self._cached: dict[int, None] = {}  # free, with contents that are also in host memory; oldest first
        self._holders = [0] * count
        self._tables: list[list[int]] = [[] for _ in range(sequences)]
        self._mirrors: dict[int, HostPage] = {}
        self._copy_page = copy_page
        self._wait = wait

    def table(self, seq: int) -> list[int]:
        """Return the pages of a sequence, in the order of its positions."""
        return self._tables[seq]

    @property
    def free_pages(self) -> int:
        return len(self._free) + len(self._cached)

    def reserve(self, seq: int, start: int, end: int) -> None:
        """Make positions start … end-1 writable: a page each, none of them shared. All or nothing."""
        table, first = self._tables[seq], start // PAGE_TOKENS
        missing = max(0, -(-end // PAGE_TOKENS) - len(table))
        shared = [i for i in range(first, len(table)) if self._holders[table[i]] > 1]
        if missing + len(shared) > self.free_pages:
            raise KVFull
        for index in shared:
            page = self._take(self._wait)
            self._copy_page(table[index], page)
            self._holders[table[index]] -= 1
            table[index] = page
        if self._mirrors:
            for page in table[first:]:
                self._forget_mirror(page, self._wait)
        table += [self._take(self._wait) for _ in range(missing)]

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

    def mirror(self, page: int) -> HostPage | None:
        """Return the copy of a page in host memory, if there is one."""
        found = self._mirrors.get(page)
        return found if found and found.holders else None

    def last_copy(self, page: int) -> Moment | None:
        """Return when a page was last copied to or from host memory, whether the copy is valid or not."""
        found = self._mirrors.get(page)
        return found.copied if found else None

    def set_mirror(self, page: int, mirror: HostPage) -> None:
        """Note that a copy of a page is in host memory, or on its way. A write to the page waits for it."""
        self._mirrors[page] = mirror
        mirror.page = page

    def restore(
        self, seq: int, mirrors: Sequence[HostPage]
    ) -> tuple[list[tuple[int, HostPage]], list[Moment]]:
        """Give an empty sequence pages with these contents. All or nothing.

        Return those that must be copied, and the moments that the copy must wait for.
        """
        missing = sum(mirror.page is None for mirror in mirrors)
        reused = sum(mirror.page in self._cached for mirror in mirrors)
        if missing > self.free_pages - reused:
            raise KVFull
        for mirror in mirrors:
            if mirror.page is not None:
                self._cached.pop(mirror.page, None)
                self._holders[mirror.page] += 1
        copied: list[tuple[int, HostPage]] = []
        after: list[Moment] = []
        for mirror in mirrors:
            if mirror.page is None:
                page = self._take(after.append)
                self.set_mirror(page, mirror)
                copied.append((page, mirror))
            self._tables[seq].append(mirror.page)  # type: ignore[arg-type]
        return copied, after

    def _take(self, wait: Wait) -> int:
        if self._free:
            page, _ = self._free.popitem()
        else:
            page = next(iter(self._cached))
            del self._cached[page]
        self._forget_mirror(page, wait)
        self._holders[page] = 1
        return page

    def _forget_mirror(self, page: int, wait: Wait) -> None:
        """Prepare to write to a page: its copy has other contents from then on, and must be complete."""
        mirror = self._mirrors.pop(page, None)
        if mirror is None:
            return
        if mirror.page == page:
            mirror.page = None
        if mirror.copied:
            wait(mirror.copied)

    def _drop(self, page: int) -> None:
        self._holders[page] -= 1
        if not self._holders[page]:
            (self._cached if page in self._mirrors else self._free)[page] = None

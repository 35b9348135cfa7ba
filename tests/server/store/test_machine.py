"""The store against a dictionary: whatever is put, deleted, swept and reopened, both answer the same."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule

from tests.server.store.making import assert_sound, count, make, packed, texts, until
from tests.thorough import examples
from vivace.server.store.base import Record
from vivace.server.store.problems import ParentGone
from vivace.server.store.sqlite import SqliteStore

NAMES = st.tuples(st.sampled_from(["alice", "bob"]), st.sampled_from([f"r{number}" for number in range(6)]))
TIMES = st.integers(0, 9)
TEXTS = st.lists(st.sampled_from(["x", "yy", "\u00e9"]), max_size=2)
TOKENS = st.none() | st.lists(st.integers(0, 9), max_size=2)  # None: it has no log


class Kept:
    """One response of the model: the record, and the one that it continues, deleted or not."""

    def __init__(self, record: Record, asks: list[str], says: list[str], above: "Kept | None") -> None:
        self.record, self.asks, self.says, self.above = record, asks, says, above

    def chain(self) -> list["Kept"]:
        return [*(self.above.chain() if self.above else []), self]


class StoreMachine(RuleBasedStateMachine):
    names = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "store.db"
        self.runner = asyncio.Runner()
        self.model: dict[tuple[str, str], Kept] = {}
        self.store = SqliteStore(self.path)
        self.run(self.store.open())

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    @rule(target=names, name=NAMES, asks=TEXTS, says=TEXTS, tokens=TOKENS, created_at=TIMES)
    def put_first(self, name: tuple[str, str], **fields: Any) -> Any:
        """A response that continues none, or what was one that did."""
        self._put(name, None, **fields)
        return name

    @rule(target=names, parent=names, id=NAMES, asks=TEXTS, says=TEXTS, tokens=TOKENS, created_at=TIMES)
    def put_next(self, parent: tuple[str, str], id: tuple[str, str], **fields: Any) -> Any:
        """A response that continues another one of its tenant, if that is still there."""
        name = (parent[0], id[1])
        old = self.model.get(name)
        if old and old.record.parent != parent[1] and self._would_loop(name, parent):
            return multiple()
        self._put(name, parent, **fields)
        return name

    @rule(name=names)
    def put_again(self, name: tuple[str, str]) -> None:
        """The same response with a new status; its parent may be gone meanwhile."""
        if kept := self.model.get(name):
            parent = (name[0], kept.record.parent) if kept.record.parent else None
            created_at = kept.record.created_at
            self._put(name, parent, asks=["new"], says=kept.says, tokens=[7], created_at=created_at)

    @rule(name=names)
    def delete(self, name: tuple[str, str]) -> None:
        was_there = self.model.pop(name, None) is not None
        assert self.run(self.store.delete(name[1], name[0])) == was_there

    @rule(older_than=TIMES)
    def sweep(self, older_than: int) -> None:
        old = [name for name, kept in self.model.items() if kept.record.created_at < older_than]
        for name in old:
            del self.model[name]
        assert self.run(self.store.sweep(older_than)) == len(old)

    @precondition(lambda self: self.model)
    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.run(self.store.open())

    @rule(name=NAMES)
    def look(self, name: tuple[str, str]) -> None:
        """Get, log and items are what the model says."""
        tenant, response_id = name
        record = self.run(self.store.get(response_id, tenant))
        log = self.run(self.store.log(response_id, tenant))
        items = self.run(self.store.items(response_id, tenant))
        if (kept := self.model.get(name)) is None:
            assert (record, log, items) == (None, None, None)
            return
        chain = kept.chain()
        assert record == kept.record
        assert texts(items) == [text for each in chain for text in (*each.asks, *each.says)]
        if all(each.record.tokens is not None for each in chain):
            assert log.tokens == b"".join(each.record.tokens for each in chain)  # type: ignore[misc]
        else:
            assert log is None

    @invariant()
    def nothing_more_is_kept(self) -> None:
        """As many responses as the model has, and no nodes that none of them needs."""
        needed = {id(each) for kept in self.model.values() for each in kept.chain()}
        assert count(self.path, "responses") == len(self.model)
        until(lambda: count(self.path, "nodes") == len(needed))

    def teardown(self) -> None:
        for name in list(self.model):
            self.look(name)
        self.run(self.store.close())
        assert_sound(self.path)
        self.runner.close()
        self.folder.cleanup()

    def _put(self, name: tuple[str, str], parent: tuple[str, str] | None, **fields: Any) -> None:
        asks, says = fields["asks"], fields["says"]
        record = make(
            name[1],
            tenant=name[0],
            parent=parent[1] if parent else None,
            asks=asks,
            says=says,
            tokens=None if fields["tokens"] is None else packed(*fields["tokens"]),
            created_at=fields["created_at"],
            log_contents=json.dumps(fields["tokens"]).encode(),
        )
        old = self.model.get(name)
        is_same_place = old is not None and old.record.parent == record.parent
        above = old.above if old and is_same_place else self.model.get(parent) if parent else None
        if parent and not is_same_place and above is None:
            try:
                self.run(self.store.put(record))
            except ParentGone:
                return
            raise AssertionError("put below a parent that is gone")
        self.run(self.store.put(record))
        if old is None:
            self.model[name] = Kept(record, asks, says, above)
        else:  # in place: those that continue it see it change
            old.record, old.asks, old.says, old.above = record, asks, says, above

    def _would_loop(self, name: tuple[str, str], parent: tuple[str, str]) -> bool:
        above = self.model.get(parent)
        return above is not None and self.model[name] in above.chain()


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=examples(40), stateful_step_count=30, suppress_health_check=list(HealthCheck)
)

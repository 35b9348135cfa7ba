"""Forgetting: single responses, old ones, and the nodes that nobody needs any more.

Owns what is deleted and when. A response's JSON goes at once. Its node goes when nothing continues it, and
then perhaps the node above: that may be a chain of thousands, so it is done in small steps, and what is still
to be looked at is itself in the database: a kill in between loses nothing. All in the caller's transaction.
"""

import sqlite3

from vivace.server.store.records import node_of

AT_ONCE = 8  # responses or nodes in one transaction: with 100 KB each, some 10 ms of overwriting
SPARE_PAGES = 4096  # free pages that the file keeps for what comes next
PAGES_AT_ONCE = 256


def delete(connection: sqlite3.Connection, response_id: str, tenant: str) -> bool:
    if (node := node_of(connection, response_id, tenant)) is None:
        return False
    _forget(connection, node)
    collect(connection)
    return True


def sweep(connection: sqlite3.Connection, older_than: int) -> int:
    """Delete some old responses. Return how many; fewer than AT_ONCE means that none are left."""
    nodes = connection.execute(
        "SELECT node FROM responses WHERE created_at < ? ORDER BY created_at LIMIT ?", (older_than, AT_ONCE)
    ).fetchall()
    for (node,) in nodes:
        _forget(connection, node)
    collect(connection)
    return len(nodes)


def has_unneeded(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM unneeded LIMIT 1").fetchone() is not None


def collect(connection: sqlite3.Connection) -> None:
    """Delete some nodes that have neither a response nor a continuation."""
    for _ in range(AT_ONCE):
        found = connection.execute(
            "SELECT node, nodes.parent FROM unneeded LEFT JOIN nodes USING (node) ORDER BY node DESC LIMIT 1"
        ).fetchone()
        if found is None:
            return
        node, parent = found
        connection.execute("DELETE FROM unneeded WHERE node = ?", (node,))
        if _is_needed(connection, node):
            continue
        connection.execute("DELETE FROM nodes WHERE node = ?", (node,))
        if parent is not None:
            connection.execute("INSERT OR IGNORE INTO unneeded VALUES (?)", (parent,))


def has_spare_room(connection: sqlite3.Connection) -> bool:
    """Return whether more than a quarter of the file is unused."""
    free = connection.execute("PRAGMA freelist_count").fetchone()[0]
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    return bool(free > SPARE_PAGES + PAGES_AT_ONCE and free * 4 > pages)


def give_back(connection: sqlite3.Connection) -> None:
    """Make the file a little smaller."""
    connection.execute(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})").fetchall()


def _forget(connection: sqlite3.Connection, node: int) -> None:
    connection.execute("DELETE FROM responses WHERE node = ?", (node,))
    connection.execute("INSERT OR IGNORE INTO unneeded VALUES (?)", (node,))


def _is_needed(connection: sqlite3.Connection, node: int) -> bool:
    row = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM responses WHERE node = ?) "
        "OR EXISTS (SELECT 1 FROM nodes WHERE parent = ?)",
        (node, node),
    ).fetchone()
    return bool(row[0])

"""How much is measured: the whole, or the same keys with fewer rounds.

Owns the counts, and about how long each part takes on two x86 cores. A quick run stays under two minutes
there.
"""

from dataclasses import dataclass

PARTS = ("round trip", "per token", "fan-out", "idle sockets", "first token")


@dataclass(frozen=True)
class Effort:
    loops: int  # of the tool loop, on each side
    turns: int  # in a loop
    token_rounds: int
    tokens: int  # in a round
    fanout_sockets: int
    fanout_tokens: int  # for each socket
    idle_sockets: int
    first_token_rounds: int
    first_token_chars: int  # of the conversation before the turn that is timed
    seconds: tuple[int, ...]  # for each of PARTS


FULL = Effort(
    loops=5,
    turns=20,
    token_rounds=9,
    tokens=1500,
    fanout_sockets=16,
    fanout_tokens=10_000,
    idle_sockets=1000,
    first_token_rounds=7,
    first_token_chars=12_000,
    seconds=(35, 80, 15, 5, 60),
)

QUICK = Effort(
    loops=2,
    turns=20,
    token_rounds=3,
    tokens=1000,
    fanout_sockets=16,
    fanout_tokens=4000,
    idle_sockets=1000,
    first_token_rounds=2,
    first_token_chars=5000,
    seconds=(15, 20, 8, 5, 15),
)

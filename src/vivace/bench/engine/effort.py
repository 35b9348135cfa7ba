"""How much is measured: the whole, or the same keys with fewer rows and rounds.

Owns the counts, and how long each part takes on two x86 cores with the default model: the time that is left
is guessed from it. A quick run stays under five minutes there.
"""

from dataclasses import dataclass

PARTS = (
    "decode",
    "first token",
    "edits",
    "warm turn",
    "steer",
    "interrupt",
    "typing",
    "park",
    "background",
)


@dataclass(frozen=True)
class Effort:
    decode_rounds: int
    decode_tokens: int
    first_token_rounds: int
    prompt_tokens: int  # of the prompt whose first token is timed
    rows: int
    edit_tokens: int  # the most that one edit may say
    steers: int
    interrupts: int  # of each kind
    typing_rounds: int
    typing_s: float  # how long a message is typed
    message_tokens: int  # of that message, at least
    park_rounds: int
    park_tokens: int  # in the session that is parked
    background_rounds: int
    background_tokens: int
    seconds: tuple[int, ...]  # for each of PARTS


FULL = Effort(
    decode_rounds=7,
    decode_tokens=64,
    first_token_rounds=5,
    prompt_tokens=300,
    rows=30,
    edit_tokens=400,
    steers=9,
    interrupts=30,
    typing_rounds=3,
    typing_s=16.0,
    message_tokens=400,
    park_rounds=3,
    park_tokens=2000,
    background_rounds=5,
    background_tokens=60,
    seconds=(90, 35, 1500, 6, 30, 110, 65, 60, 110),
)

QUICK = Effort(
    decode_rounds=3,
    decode_tokens=24,
    first_token_rounds=2,
    prompt_tokens=300,
    rows=3,
    edit_tokens=120,
    steers=3,
    interrupts=5,
    typing_rounds=1,
    typing_s=16.0,
    message_tokens=400,
    park_rounds=1,
    park_tokens=2000,
    background_rounds=2,
    background_tokens=30,
    seconds=(25, 20, 80, 5, 10, 20, 25, 45, 35),
)

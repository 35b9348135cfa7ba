"""`vivace bench team`: several sockets at once, the speed of all, and what of the engine's arrives."""

import msgspec

from vivace.bench.served.turns import Extension, FinishedResponse, MeasuredTurn
from vivace.bench.team.measure import figures
from vivace.bench.team.run import run_team_bench, table
from vivace.config import Settings
from vivace.protocol.shapes.events import Waterfall

SECOND = 1_000_000_000


def a_turn(first_s: float, last_s: float, characters: int, tokens: int) -> MeasuredTurn:
    """Return a turn whose characters come evenly between two moments."""
    times = [first_s + (last_s - first_s) * at / (characters - 1) for at in range(characters)]
    waterfall = Waterfall(output_tokens=tokens, decode_ms=(last_s - first_s) * 1e3)
    answer = FinishedResponse("r", "incomplete", Extension(waterfall))
    return MeasuredTurn(0, [int(each * SECOND) for each in times], characters, 0, answer)


def test_only_the_time_in_which_all_write_counts() -> None:
    """Two turns of 100 tok/s that overlap for a second are 200 tok/s, whatever came before and after."""
    found = figures([a_turn(0.0, 2.0, 801, 200), a_turn(1.0, 3.0, 401, 200)])
    assert 199 <= found["tokens_per_s"] <= 201
    assert 0.99 <= found["delivered_share"] <= 1.01


def test_every_number_of_users_is_in_the_report(settings: Settings) -> None:
    """A run against a real server: a socket a user, limits by what is known of the device."""
    script = settings.cache_dir / "script.json"
    script.parent.mkdir(parents=True)
    reply = "word " * 40
    script.write_bytes(msgspec.json.encode({"replies": {"": reply}, "context_tokens": 20000, "step_ms": 1.0}))
    report = run_team_bench(settings.having(model=f"scripted:{script}"), [1, 3], tokens=100)
    assert [each["tokens"] for each in report["users"].values()] == [100, 300]
    assert all(each["tokens_per_s"] > 0 for each in report["users"].values())
    assert [line.split()[0] for line in table(report).splitlines()[-4:-2]] == ["1", "3"]

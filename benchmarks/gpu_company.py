"""Several users who edit at once on a GPU: drafts in the passes that they share, or alone, in turns.

    gpu_company.py              2, 4 and 8 users; random weights of the 1.5B's shape in 8 bits

What a user will say is known from a run without drafts. The prediction is that text with one token in 25
changed, so that a pass alone says about as much as one of a real edit. "In turns" is the runner alone: each
user in turn verifies a draft of the best of some lengths. "In company" goes through the engine, drafting and
all. Every text must be the one without drafts. Needs a GPU and the engine's packages.
"""

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from vivace.bench.gpu.shapes import random_runner
from vivace.engine.loop.engine import Engine
from vivace.engine.runners.base import BatchDecodingRunner, SamplingSpec, Span
from vivace.engine.runners.cuda.model.shape import QWEN_CODER_1_5B
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.wire.frames import Close, Finished, FromEngine, Generate, Open, Sampling, Tokens

USERS = (2, 4, 8)
PROMPT_TOKENS = 500
OUTPUT_TOKENS = 600
TOKENS_BETWEEN_EDITS = 25
ROUNDS = 3  # the quickest counts
LENGTHS = (8, 16, 32)  # of a pass alone: the last token and a draft

Texts = dict[str, list[int]]


def play(
    runner: BatchDecodingRunner,
    costs: dict[int, float],
    row_costs: dict[int, float],
    users: int,
    texts: Texts,
) -> tuple[Texts, float, int]:
    """Let users say their texts at once. Return what they said, tok/s while all of them speak, and passes."""
    said: Texts = {f"user {user}": [] for user in range(users)}
    sent: list[tuple[float, str, int]] = []
    passes: dict[str, int] = {}

    def receive(*frames: FromEngine) -> None:
        now = time.perf_counter()
        for frame in frames:
            if isinstance(frame, Tokens):
                said[frame.turn] += frame.tokens
                sent.append((now, frame.turn, len(frame.tokens)))
            elif isinstance(frame, Finished):
                passes[frame.turn] = frame.waterfall.steps

    engine = Engine(runner, receive, StepCosts(costs), row_costs=StepCosts(row_costs))
    for user, name in enumerate(said):
        engine.handle(Open(name, [], tenant=name))
        work = Generate(name, name, prompt_of(user), max_tokens=OUTPUT_TOKENS, use_drafts=bool(texts))
        work.sampling = Sampling(temperature=1.0, seed=user)
        work.prediction = edited(texts[name], user) if texts else []
        engine.handle(work)
    while not engine.is_idle:
        engine.step()
    for name in said:
        engine.handle(Close(name))
    begun = max(min(at for at, turn, _ in sent if turn == name) for name in said)
    ended = min(max(at for at, turn, _ in sent if turn == name) for name in said)
    return (
        said,
        sum(count for at, _, count in sent if begun < at <= ended) / (ended - begun),
        max(passes.values()),
    )


def play_in_turns(runner: BatchDecodingRunner, texts: Texts, tokens: int) -> tuple[Texts, float]:
    """Let each user in turn verify a draft in a pass of its own. Return what they said, and tok/s."""
    said = {name: text[:1] for name, text in texts.items()}
    predictions = [edited(text, user) for user, text in enumerate(texts.values())]
    for user in range(len(texts)):
        runner.forward([Span(user, 0, prompt_of(user))])
    begun = time.perf_counter()
    while waiting := [name for name in said if len(said[name]) < OUTPUT_TOKENS]:
        for name in waiting:
            user, text = int(name.split()[1]), said[name]
            draft = predictions[user][len(text) : -1][: tokens - 1]
            start = PROMPT_TOKENS + len(text) - 1
            found = runner.decode(
                Span(user, start, [text[-1], *draft]), SamplingSpec(1.0, user), 0, lambda: None
            )
            runner.trim(user, start + len(found))
            text += found
    spent_s = time.perf_counter() - begun
    for user in range(len(texts)):
        runner.trim(user, 0)
    return said, sum(len(text) - 1 for text in said.values()) / spent_s


def prompt_of(user: int) -> list[int]:
    return [(user * 7919 + at * 31) % 1000 for at in range(PROMPT_TOKENS)]


def edited(text: list[int], seed: int) -> list[int]:
    chance = random.Random(seed)
    return [token ^ 1 if chance.random() < 1 / TOKENS_BETWEEN_EDITS else token for token in text]


def compare(runner: BatchDecodingRunner, users: int) -> str:
    costs, row_costs = runner.known_costs(), runner.known_row_costs()
    texts, plain, _ = play(runner, costs, row_costs, users, {})
    rounds = [play_in_turns(runner, texts, tokens) for tokens in LENGTHS for _ in range(ROUNDS)]
    shared = [play(runner, costs, row_costs, users, texts) for _ in range(ROUNDS)]
    is_same = all(each[0] == texts for each in (*rounds, *shared))
    in_turns, (in_company, passes) = max(rate for _, rate in rounds), max(each[1:] for each in shared)
    return (
        f"without drafts {plain:.0f} tok/s, in turns {in_turns:.0f}, in company {in_company:.0f} "
        f"({passes} passes), texts {'the same' if is_same else 'DIFFER'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--users", type=int, nargs="*", default=USERS)
    options = parser.parse_args()
    runner = random_runner(QWEN_CODER_1_5B, 8)
    print("rows, ms:", {size: round(ms, 2) for size, ms in runner.known_row_costs().items()}, flush=True)
    for users in options.users:
        print(f"{users} users: {compare(runner, users)}", flush=True)


if __name__ == "__main__":
    main()

"""What Enter finds: the first token with the message prefilled while it was typed, and without.

A message of about `Effort.message_tokens` tokens is typed evenly over `Effort.typing_s` seconds, and its text
goes to the engine 4 times a second. By default that is 25 tokens a second, several times what the fastest
typist can do, so the engine has less time here than a person would leave it. Every fourth time the last
letters are wrong and are corrected with the next one. Enter comes a beat after the last of them, with letters
that were not sent before. A pasted message leaves no time at all; it is the case "without".
"""

from vivace.bench.engine.context import BenchContext, Section
from vivace.bench.engine.engine_process import EngineProcess
from vivace.bench.figures import median, ratio
from vivace.engine.wire.frames import Append, Generate

BEATS_A_SECOND = 4
TYPO_EVERY = 4
TYPO = "xqz"


def measure_typing(context: BenchContext, engine: EngineProcess) -> Section:
    beats = round(context.effort.typing_s * BEATS_A_SECOND)
    with_typing, without, prefilled = [], [], []
    for number in range(context.effort.typing_rounds):
        context.progress.note(f"message {number + 1} of {context.effort.typing_rounds}")
        text = context.prompts.text(context.effort.message_tokens)
        without.append(_enter(context, engine, text, [])[0])
        first_token_ms, left = _enter(context, engine, text, typed_prefixes(text, beats))
        with_typing.append(first_token_ms)
        prefilled.append(left)
    return {
        "first_token_ratio": ratio(median(with_typing), median(without)),
        "with_typing_ms": median(with_typing),
        "without_typing_ms": median(without),
        "prefilled_after_enter_tokens": max(prefilled),
        "message_tokens": len(context.prompts.message(text)),
        "typed_in_s": context.effort.typing_s,
        "rounds": context.effort.typing_rounds,
    }


def typed_prefixes(text: str, beats: int) -> list[str]:
    """Return the text as it stood at each moment before Enter, some with a typing error at the end."""
    seen = []
    for beat in range(1, beats):
        upto = text[: len(text) * beat // beats]
        has_slip = beat % TYPO_EVERY == 0 and len(upto) > len(TYPO)
        seen.append(upto[: -len(TYPO)] + TYPO if has_slip else upto)
    return seen


def _enter(context: BenchContext, engine: EngineProcess, text: str, drafts: list[str]) -> tuple[float, int]:
    """Return milliseconds from Enter to the first token, and the tokens prefilled in between."""
    system = context.prompts.system()
    with context.cold_session(engine) as session:
        engine.run(Append(session, "", system))
        for draft in drafts:
            typed = context.prompts.typed(draft, after=system)
            engine.begin(Append(session, "", typed, is_provisional=True))
            engine.watch(1 / BEATS_A_SECOND)
        turn = engine.run(Generate(session, "", context.prompts.message(text, after=system), max_tokens=1))
    return turn.first_token_ms, turn.waterfall.new_tokens

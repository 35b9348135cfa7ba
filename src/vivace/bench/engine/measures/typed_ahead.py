"""What Enter finds: the first token with the message prefilled while it was typed, and without.

The rhythm: a message of about 400 tokens is typed evenly over `Effort.typing_s` seconds, and its text goes to
the engine four times a second. That is 25 tokens a second, several times what the fastest typist can do, so
the engine has less time here than a person would leave it. Every fourth time the last letters are wrong and
are put right with the next one. Enter comes a beat after the last of them, with letters that were not sent
before. A pasted message leaves no time at all; it is the case "without".
"""

from vivace.bench.engine.engine_process import EngineProcess
from vivace.bench.engine.rig import Rig, Section
from vivace.bench.figures import median, ratio
from vivace.engine.wire.frames import Append, Generate

MESSAGE_TOKENS = 400
BEATS_A_SECOND = 4
SLIP_EVERY = 4
SLIP = "xqz"


def measure_typing(rig: Rig, engine: EngineProcess) -> Section:
    beats = round(rig.effort.typing_s * BEATS_A_SECOND)
    with_typing, without, prefilled = [], [], []
    for number in range(rig.effort.typing_rounds):
        rig.progress.note(f"message {number + 1} of {rig.effort.typing_rounds}")
        text = rig.prompts.text(MESSAGE_TOKENS)
        without.append(_enter(rig, engine, text, [])[0])
        first_token_ms, left = _enter(rig, engine, text, drafts_of(text, beats))
        with_typing.append(first_token_ms)
        prefilled.append(left)
    return {
        "first_token_ratio": ratio(median(with_typing), median(without)),
        "with_typing_ms": median(with_typing),
        "without_typing_ms": median(without),
        "prefilled_after_enter_tokens": max(prefilled),
        "message_tokens": len(rig.prompts.message(text)),
        "typed_in_s": rig.effort.typing_s,
        "rounds": rig.effort.typing_rounds,
    }


def drafts_of(text: str, beats: int) -> list[str]:
    """The text as it stood at each beat before Enter, some with a slip at the end."""
    seen = []
    for beat in range(1, beats):
        upto = text[: len(text) * beat // beats]
        has_slip = beat % SLIP_EVERY == 0 and len(upto) > len(SLIP)
        seen.append(upto[: -len(SLIP)] + SLIP if has_slip else upto)
    return seen


def _enter(rig: Rig, engine: EngineProcess, text: str, drafts: list[str]) -> tuple[float, int]:
    """Milliseconds from Enter to the first token, and what was prefilled in between."""
    system = rig.prompts.system()
    with rig.cold_session(engine) as session:
        engine.run(Append(session, "", system))
        for draft in drafts:
            typed = rig.prompts.typed(draft, after=system)
            engine.begin(Append(session, "", typed, is_provisional=True))
            engine.watch(1 / BEATS_A_SECOND)
        turn = engine.run(Generate(session, "", rig.prompts.message(text, after=system), max_tokens=1))
    return turn.first_token_ms, turn.waterfall.new_tokens

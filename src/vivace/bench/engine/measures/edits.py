"""Edits as users get them: drafts on and off, and against llama-cpp-python's prompt-lookup decoding.

Owns what a generation's time is: all of the prompt but its last token is in the KV before the clock starts;
it stops when the last token is here. So it holds the decoding of every token, the first included, and none of
the prefill. The same for all, each row one after the other. Drafts come first: nothing that was said without
them can then be in the session for them to learn from.
"""

from dataclasses import dataclass

from vivace.bench.engine.context import BenchContext, Section
from vivace.bench.engine.engine_process import EngineProcess, Turn
from vivace.bench.engine.peer import Peer, PeerReply, PeerRequest
from vivace.bench.figures import median, ratio
from vivace.bench.rows import EditCase
from vivace.engine.wire.frames import Append, Generate, Rewind, Sampling

LOOKUP_TOKENS = (2, 10)  # llama-cpp-python's recommendation for CPUs, and its default
NEAR_TIE = 0.5  # logits apart at most; the report lists every gap


@dataclass(frozen=True)
class EditTimes:
    """One row, generated in every way."""

    with_drafts: Turn
    without: Turn
    lookups: dict[int, PeerReply]
    difference: Section | None


def measure_edits(context: BenchContext, engine: EngineProcess, peer: Peer) -> tuple[Section, Section]:
    """Return the section `edits`, and what it adds to `peer`."""
    times = []
    for number, case in enumerate(context.cases):
        context.progress.note(f"row {number + 1} of {len(context.cases)}, {case.name}")
        with context.cold_session(engine) as session:
            times.append(_measure_case(context, engine, peer, case, session))
    return _our_section(times), _peer_section(times)


def _measure_case(
    context: BenchContext, engine: EngineProcess, peer: Peer, case: EditCase, session: str
) -> EditTimes:
    engine.run(Append(session, "", case.prompt[:-1]))
    with_drafts = _generate(context, engine, case, session, use_drafts=True)
    without = _generate(context, engine, case, session, use_drafts=False)
    lookups = {count: _generate_with_lookup(context, peer, case, count) for count in LOOKUP_TOKENS}
    return EditTimes(with_drafts, without, lookups, _difference(engine, case, session, with_drafts, without))


def _generate(
    context: BenchContext, engine: EngineProcess, case: EditCase, session: str, *, use_drafts: bool
) -> Turn:
    """Generate once, and put the session back to where it was."""
    turn = engine.run(
        Generate(
            session,
            "",
            case.prompt[-1:],
            max_tokens=context.effort.edit_tokens,
            stop=case.stop,
            prediction=case.prediction if use_drafts else [],
            use_drafts=use_drafts,
        )
    )
    engine.send(Rewind(session, len(case.prompt) - 1))
    return turn


def _generate_with_lookup(context: BenchContext, peer: Peer, case: EditCase, lookup_tokens: int) -> PeerReply:
    return peer.generate(
        PeerRequest(
            case.prompt,
            context.effort.edit_tokens,
            ready_tokens=len(case.prompt) - 1,
            stop=case.stop,
            end_tokens=context.end_tokens,
            lookup_tokens=lookup_tokens,
        )
    )


def _difference(
    engine: EngineProcess, case: EditCase, session: str, with_drafts: Turn, without: Turn
) -> Section | None:
    """Return where the two texts differ and how far apart the two best tokens are there, or None."""
    on, off = with_drafts.tokens, without.tokens
    if on == off:
        return None
    pairs = zip(on, off, strict=False)
    at = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(on), len(off)))
    asked = Generate(
        session,
        "",
        case.prompt[-1:] + off[:at],
        max_tokens=1,
        sampling=Sampling(top_logprobs=2),
        use_drafts=False,
    )
    best, second = engine.run(asked).logprobs[0].top
    gap = best.logprob - second.logprob
    chosen = {tokens[at] for tokens in (on, off) if at < len(tokens)}
    return {
        "row": case.name,
        "at_token": at,
        "tokens": [tokens[at] for tokens in (on, off) if at < len(tokens)],
        "logit_gap": gap,
        "is_near_tie": gap <= NEAR_TIE and chosen <= {best.token, second.token},
    }


def _our_section(times: list[EditTimes]) -> Section:
    on, off = [each.with_drafts for each in times], [each.without for each in times]
    differences = [each.difference for each in times if each.difference]
    near_ties = [each["is_near_tie"] for each in differences]
    rows = [ratio(_seconds_a_token(a), _seconds_a_token(b)) for a, b in zip(off, on, strict=True)]
    return {
        "speedup": ratio(_rate(on), _rate(off)),
        "speedup_median_row": median(rows),
        "tokens_per_pass": ratio(sum(len(t.tokens) for t in on), sum(t.waterfall.steps for t in on)),
        "identical": 1 - len(differences) / len(times),
        "differences": differences,
        "differences_near_ties": sum(near_ties) / len(near_ties) if near_ties else 1.0,
        "rows": len(times),
        "tokens": sum(len(turn.tokens) for turn in on),
        "with_drafts_tokens_per_s": _rate(on),
        "without_drafts_tokens_per_s": _rate(off),
        "draft_accepted": sum(turn.waterfall.draft_accepted for turn in on),
        "draft_rejected": sum(turn.waterfall.draft_rejected for turn in on),
    }


def _peer_section(times: list[EditTimes]) -> Section:
    """Compare with the better one of the peer's settings, over all rows."""
    rates = {count: _rate([each.lookups[count] for each in times]) for count in LOOKUP_TOKENS}
    best = max(rates, key=lambda count: rates[count])
    ours = _rate([each.with_drafts for each in times])
    return {
        "edit_ratio": ratio(ours, rates[best]),
        "edit": {
            "ours_tokens_per_s": ours,
            "peer_tokens_per_s": rates[best],
            "peer_lookup_tokens": best,
            **{f"peer_lookup_{count}_tokens_per_s": rate for count, rate in rates.items()},
        },
    }


def _rate(generations: list[Turn] | list[PeerReply]) -> float:
    """Return tokens a second over all generations together."""
    return ratio(sum(len(each.tokens) for each in generations), sum(each.whole_s for each in generations))


def _seconds_a_token(turn: Turn) -> float:
    return turn.whole_s / len(turn.tokens)

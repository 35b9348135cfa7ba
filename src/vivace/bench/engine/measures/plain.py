"""The same work as plain llama.cpp does it: decoding without drafts, and a cold prompt's first token.

Ours and theirs take turns, so that a slow moment of the machine meets both.
"""

from vivace.bench.engine.context import BenchContext, Section
from vivace.bench.engine.engine_process import EngineProcess
from vivace.bench.engine.peer import Peer, PeerRequest
from vivace.bench.engine.prompts import LONG_ANSWER
from vivace.bench.figures import median, ratio
from vivace.engine.wire.frames import Generate

WARM_UP_TOKENS = 64


def measure_decode(context: BenchContext, engine: EngineProcess, peer: Peer) -> Section:
    """Return tokens a second after the first one, with the same weight file on both sides."""
    prompt = context.prompts.message(LONG_ANSWER)
    most = context.effort.decode_tokens
    ours, theirs, are_same = [], [], []
    _warm_up(context, engine, peer)
    for number in range(context.effort.decode_rounds):
        context.progress.note(f"round {number + 1} of {context.effort.decode_rounds}")
        with context.cold_session(engine) as session:
            mine = engine.run(Generate(session, "", prompt, max_tokens=most, use_drafts=False))
        its = peer.generate(PeerRequest(prompt, most, end_tokens=context.end_tokens))
        ours.append(mine.token_ms)
        theirs.append(its.token_ms)
        are_same.append(mine.tokens == its.tokens)
    return {
        "decode_ratio": ratio(median(theirs), median(ours)),
        "decode": {
            "ours_tokens_per_s": ratio(1e3, median(ours)),
            "peer_tokens_per_s": ratio(1e3, median(theirs)),
            "tokens": most,
            "rounds": len(ours),
            "is_same_text": all(are_same),
        },
    }


def measure_first_token(context: BenchContext, engine: EngineProcess, peer: Peer) -> Section:
    """Time a new prompt: ours from frame to token, the peer's inside its own process."""
    ours, theirs = [], []
    _warm_up(context, engine, peer)
    for number in range(context.effort.first_token_rounds):
        context.progress.note(f"round {number + 1} of {context.effort.first_token_rounds}")
        prompt = context.prompts.fresh(context.effort.prompt_tokens)
        with context.cold_session(engine) as session:
            ours.append(engine.run(Generate(session, "", prompt, max_tokens=1)).first_token_ms)
        theirs.append(peer.generate(PeerRequest(prompt, 1)).first_token_ms)
    return {
        "first_token_ratio": ratio(median(ours), median(theirs)),
        "first_token": {
            "ours_ms": median(ours),
            "peer_ms": median(theirs),
            "prompt_tokens": context.effort.prompt_tokens,
            "rounds": len(ours),
        },
    }


def _warm_up(context: BenchContext, engine: EngineProcess, peer: Peer) -> None:
    """Run a first pass on both sides, which reads the weights from disk."""
    prompt = context.prompts.fresh(WARM_UP_TOKENS)
    with context.cold_session(engine) as session:
        engine.run(Generate(session, "", prompt, max_tokens=2))
    peer.generate(PeerRequest(prompt, 2))

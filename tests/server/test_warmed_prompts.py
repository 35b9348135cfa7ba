"""The agent's prompts are in the KV before anybody asks, and on the disk for the next server."""

from vivace.agent.model import Model
from vivace.agent.prompting import begun_answer, read_prompt, user
from vivace.cli.warmup import PROMPTS, warm_prompts
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ServerAddress
from vivace.config import Settings


async def test_a_first_edit_finds_its_prompts_prefilled(
    shallow_served: Settings, shallow_address: ServerAddress
) -> None:
    """What is new in the first real request is its own part; the fixed beginnings are files already."""
    async with ResponsesClient(shallow_address) as client:
        model = Model(client, shallow_served.model)
        await warm_prompts(model)
        await model.score([*read_prompt("locate"), user("a.py\ndef f\n\nTask: x"), begun_answer("`")], ["f`"])
        turn = model.waterfalls[-1]
    assert turn.cached_tokens > 200
    assert turn.new_tokens < 40
    kept = list(shallow_served.kv_dir.rglob("*.prefix"))
    assert 1 <= len(kept) <= len(PROMPTS)

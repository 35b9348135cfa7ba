"""A model of the hub from its name to an answer: fetched, recognised by its own template, served."""

import json
from pathlib import Path

from tests.e2e.terminal import Home
from tests.models.hub.fake_hub import serving


def test_a_model_is_pulled_and_answers(home: Home, shallow: Path) -> None:
    """`models pull hf:…` brings it with its checksum, `ask --model` uses it under any of its names."""
    with serving() as hub:
        hub.add("someone/small-GGUF", {"small-Q4_1.gguf": shallow.read_bytes()})
        home.extra |= {"HF_ENDPOINT": hub.url, "VIVACE_DEVICE": "cpu"}
        pulled = home.run("models", "pull", "hf:someone/small-GGUF")
        assert pulled.code == 0, pulled.err
        assert "licence apache-2.0, 8,192 tokens of context" in pulled.err
        hub.add(
            "someone/vast-GGUF", {"vast-Q4_1.gguf": shallow.read_bytes()}, sizes={"vast-Q4_1.gguf": 10**13}
        )
        vast = home.run("ask", "Say hello.", "--model", "hf:someone/vast-GGUF")
        assert (vast.code, "GB of memory; models may take" in vast.err) == (3, True), vast.err
        assert not list((home.folder / "cache" / "models").rglob("vast*")), "it is seen before the download"
        asked = len(hub.asked)
        done = home.run("ask", "Say hello.", "--model", "hf:someone/small-GGUF:Q4_1")
        assert done.code == 0, done.err
        assert len(hub.asked) == asked, "it is here: nobody is asked"
    listed = [json.loads(line) for line in home.run("models", "--json").out.splitlines()]
    [found] = [model for model in listed if model["name"] == "hf:someone/small-GGUF:small-Q4_1.gguf"]
    assert found["is_loaded"]
    removed = home.run("models", "rm", "hf:someone/small-GGUF")
    assert removed.out.startswith("Removed hf:someone/small-GGUF")

"""`vivace bench gpu` without a GPU: what it asks of an engine, and what it makes of the answers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from vivace.bench.engine.engine_process import EngineProcess
from vivace.bench.gpu.material import Edit, Material, load_material, save_material
from vivace.bench.gpu.measures import (
    GpuBench,
    measure_decode,
    measure_edits,
    measure_first_token,
    measure_steer,
)
from vivace.bench.gpu.report import judge, table
from vivace.engine.wire.job import Job
from vivace.errors import FileProblem

REPLY = "def f(x):\n    return x + 1\n" * 12
MATERIAL = Material(
    source="one edit",
    code=list(b"some code to read " * 400),
    steer=list(b"now something else"),
    edits=[Edit("f", list(b"rewrite f: "), list(REPLY.encode()), ["```"])],
)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[GpuBench]:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": {"": REPLY}, "step_ms": 1}))
    with EngineProcess(Job(f"scripted:{script}", "", context_tokens=4096, allow_scripted=True)) as engine:
        yield GpuBench(engine, MATERIAL, decoded=20, rounds=3)


def test_everything_is_asked(bench: GpuBench) -> None:
    """Each measurement gives its figures, and an edit says the same with drafts and without."""
    decode = measure_decode(bench, 100)
    assert decode["tokens"] == 20
    assert decode["is_same_every_time"]
    assert 0 < decode["host_share"] < 1
    assert measure_first_token(bench, 200) > 0
    steer = measure_steer(bench)
    assert steer["new_tokens"] == len(MATERIAL.steer)
    assert steer["first_token_ms"] > 0
    edits = measure_edits(bench)
    assert edits["identical"] == 1.0
    assert edits["different_rows"] == []


def test_material_goes_to_a_file_and_comes_back(tmp_path: Path) -> None:
    """A machine without a tokenizer reads what another has made; what is no such file is refused."""
    save_material(MATERIAL, tmp_path / "material.json")
    assert load_material(tmp_path / "material.json") == MATERIAL
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(FileProblem):
        load_material(tmp_path / "other.json")


def test_the_table_names_what_is_missed() -> None:
    """Figures beside their limits; what was not measured is not judged; a missing peer is a line."""
    report = {
        "gpu": {"name": "NVIDIA H200", "driver": "580"},
        "versions": {"torch": "2.11"},
        "bandwidth": {"copy_tb_s": 4.2, "read_tb_s": 4.3},
        "weights": "model.gguf",
        "edits_from": "one edit",
        "8-bit": {
            "decode": {"1024": {"tokens_per_s": 1826.0, "host_share": 0.02}},
            "first_token_ms": {"1024": 12.6},
        },
        "peers": {"llama_cpp": {"missing": "not built for CUDA"}},
    }
    assert judge(report) == {
        "8-bit.decode.1024.tokens_per_s": True,
        "8-bit.first_token_ms.1024": False,
        "8-bit.decode.1024.host_share": True,
    }
    shown = table(report).splitlines()
    assert any(line.startswith("decode, 8-bit, 1k") and line.endswith("yes") for line in shown)
    assert any(line.startswith("first token, 1k new") and line.endswith("NO") for line in shown)
    assert shown[-1] == "llama_cpp: not built for CUDA"

"""`vivace bench gpu --users` without a GPU: several turns at once, and the rate of all of them."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.engine.loop.test_rows import RowsRunner
from vivace.bench.gpu.peers.asking import measure_team_peers, median_figures, team_wish
from vivace.bench.gpu.peers.vllm import team_figures
from vivace.bench.gpu.users import measure_users, named_model, parse_users, users_table
from vivace.cli.measure.bench import bench
from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES


class Lasting(RowsRunner):
    """Says the same token for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.info = self.info._replace(end_tokens=frozenset())


def test_all_users_decode_at_once() -> None:
    """Every user gets all tokens, in passes that they share, and a second number of users begins afresh."""
    runner = Lasting()
    for users in (4, 2, 1):
        found = measure_users(runner, users, prompt_tokens=20, output_tokens=30)
        assert found["tokens"] == users * 30
        assert found["tokens_per_s"] > 0
    assert {len(rows) for rows in runner.shared} >= {4, 2}


def test_the_report_is_a_line_a_number_of_users() -> None:
    """With the limit beside it where there is one, then the peers, or why one is missing."""
    report = {
        "shape": "qwen2.5-coder-1.5b",
        "gpu": {"name": "H200"},
        "8-bit": {"16": {"tokens_per_s": 9500.4}},
        "4-bit": {"16": {"tokens_per_s": 8000.0}},
        "peers": {
            "vllm": {
                "version": "0.23",
                "format": "bf16",
                "weights": "random",
                "users": {"16": {"tokens_per_s": 7212.2}},
            },
            "vllm_fp8": {"missing": "No module named 'vllm'"},
        },
    }
    lines = users_table(report).splitlines()
    assert lines[0] == "qwen2.5-coder-1.5b, random weights, H200: tok/s of all, 300 tokens each"
    assert lines[1].split() == ["8-bit", "16", "users", "9500", "tok/s,", "must", "9000"]
    assert lines[2].split() == ["4-bit", "16", "users", "8000", "tok/s"]
    assert lines[3].split() == [
        "vllm",
        "0.23,",
        "bf16,",
        "random",
        "weights,",
        "greedy",
        "16",
        "users",
        "7212",
        "tok/s",
    ]
    assert lines[4] == "vllm_fp8: No module named 'vllm'"
    assert "must" not in users_table(report | {"shape": "qwen2.5-coder-7b"})


def test_what_a_peer_says_is_counted_behind_its_first_tokens() -> None:
    """Prompts are read in 40 ms by 4 users, and every token of all takes 2 ms: 2,000 tok/s."""
    asked: list[tuple[int, int]] = []

    def spent_ms(prompts: list[list[int]], tokens: int) -> float:
        asked.append((len(prompts), tokens))
        return 10.0 * len(prompts) + 2.0 * (tokens - 1)

    found = team_figures(team_wish([1, 4]), spent_ms)
    assert found == {"users": {"1": {"tokens_per_s": 500.0}, "4": {"tokens_per_s": 2000.0}}}
    assert set(asked) == {(users, tokens) for users in (1, 4) for tokens in (1, 300, 301)}


def test_figures_are_medians_behind_a_round_that_warms_up() -> None:
    rounds = iter([(900.0, 90.0), (20.0, 4.0), (30.0, 2.0), (25.0, 50.0)])
    assert median_figures(lambda: next(rounds)) == {"tokens_per_s": 250.0, "first_token_ms": 25.0}


def test_prompts_of_users_share_no_beginning() -> None:
    """A peer that keeps prefixes would read one prompt for all."""
    prompts = team_wish([2, 64])["prompts"]
    assert len(prompts) == 64
    assert len({tuple(prompt[:2]) for prompt in prompts}) == 64


def test_a_file_is_known_by_its_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM reads no such file, and is as quick with random weights, wherever the head is."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("gguf", reason="gguf is not installed: vivace extras add cuda")
    from vivace.bench.gpu.random_gguf import MIXES, write_gguf

    shape = replace(KNOWN_SHAPES["qwen3-0.6b"], layers=1, vocab=512, tied_head=False)
    path = tmp_path / "random.gguf"
    write_gguf(path, shape, MIXES["Q8_0"])
    assert named_model(path) == {"checkpoint": str(path)}
    monkeypatch.setitem(KNOWN_SHAPES, "small", replace(shape, tied_head=True))
    assert named_model(path) == {"checkpoint": str(path), "shape": "small"}


def test_a_team_peer_that_is_not_here_is_a_line() -> None:
    """And the others are asked nevertheless."""
    if pytest.importorskip("torch", reason="PyTorch is not installed").cuda.is_available():
        pytest.skip("there is a GPU: they may answer")
    found = measure_team_peers({"shape": "qwen3-0.6b"} | team_wish([1]))
    assert set(found) == {"vllm", "vllm_fp8", "vllm_int4"}
    assert all(each["missing"] for each in found.values())


def test_users_of_a_shape_that_nobody_knows_are_refused() -> None:
    """Before a GPU is looked for; the names that there are, are said."""
    done = CliRunner().invoke(bench, ["gpu", "--users", "1,2", "--shape", "qwen9"])
    assert done.exit_code == 2
    assert "qwen3-coder-30b-a3b" in done.output


@pytest.mark.parametrize("text", ["", "0", "1,,2", "65", "two"])
def test_numbers_of_users_that_cannot_be_are_refused(text: str) -> None:
    """Before anything is loaded."""
    assert parse_users("1,2,64") == [1, 2, 64]
    with pytest.raises(ValueError):  # noqa: PT011
        parse_users(text)

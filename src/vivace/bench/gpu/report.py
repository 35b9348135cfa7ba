"""The GPU's figures for people, each beside what it must reach and what we aim for.

Owns the limits of docs/gpu-notes.md and the table. Figures that were not measured are left out.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Line:
    key: str
    what: str
    sign: str  # ≥ or ≤
    must: float
    aim: float | None = None
    unit: str = "tok/s"

    def is_met_by(self, value: float) -> bool:
        return value >= self.must if self.sign == "≥" else value <= self.must


LINES = (
    Line("8-bit.decode.1024.tokens_per_s", "decode, 8-bit, 1k", "≥", 1800, 2200),
    Line("8-bit.decode.16384.tokens_per_s", "decode, 8-bit, 16k", "≥", 1000, 1800),
    Line("16-bit.decode.1024.tokens_per_s", "decode, bf16, 1k", "≥", 950, 1180),
    Line("8-bit.edits.tokens_per_s", "edits, 8-bit, drafts on", "≥", 9000),
    Line("8-bit.edits.identical", "edits with the same text, drafts on and off", "≥", 1.0, None, ""),
    Line("8-bit.first_token_ms.1024", "first token, 1k new tokens", "≤", 4.2, None, "ms"),
    Line("8-bit.first_token_ms.4096", "first token, 4k new tokens", "≤", 15, None, "ms"),
    Line("8-bit.steer.first_token_ms", "steer to first new token", "≤", 15, 5, "ms"),
    Line("8-bit.stop_in_prefill_ms", "a prompt of 16k that is read, stopped", "≤", 10, None, "ms"),
    Line("8-bit.decode.1024.host_share", "host work between two steps, share of one", "≤", 0.03, None, ""),
)
OTHERS = (
    ("4-bit.decode.1024.tokens_per_s", "decode, 4-bit, 1k", "tok/s"),
    ("4-bit.decode.16384.tokens_per_s", "decode, 4-bit, 16k", "tok/s"),
    ("4-bit.decode.1024.share_of_copy_bandwidth", "share of the copy bandwidth, 4-bit, 1k", ""),
    ("4-bit.edits.tokens_per_s", "edits, 4-bit, drafts on", "tok/s"),
    ("4-bit.first_token_ms.1024", "first token, 4-bit, 1k new tokens", "ms"),
    ("8-bit.decode.4096.tokens_per_s", "decode, 8-bit, 4k", "tok/s"),
    ("16-bit.decode.4096.tokens_per_s", "decode, bf16, 4k", "tok/s"),
    ("16-bit.decode.16384.tokens_per_s", "decode, bf16, 16k", "tok/s"),
    ("8-bit.decode.1024.share_of_copy_bandwidth", "share of the copy bandwidth, 8-bit, 1k", ""),
    ("16-bit.decode.1024.share_of_copy_bandwidth", "share of the copy bandwidth, bf16, 1k", ""),
    ("8-bit.first_token_ms.8192", "first token, 8k new tokens", "ms"),
    ("16-bit.edits.tokens_per_s", "edits, bf16, drafts on", "tok/s"),
    ("8-bit.edits.tokens_per_pass", "tokens said in one pass of an edit", ""),
    ("peers.vllm.tokens_per_s", "vLLM, bf16, 1k", "tok/s"),
    ("peers.vllm.first_token_ms", "vLLM, first token, 1k new tokens", "ms"),
    ("peers.vllm_fp8.tokens_per_s", "vLLM, 8-bit floats, 1k", "tok/s"),
    ("peers.vllm_fp8.first_token_ms", "vLLM, 8-bit floats, first token, 1k new tokens", "ms"),
    ("peers.transformers.tokens_per_s", "transformers, static cache, compiled, bf16, 1k", "tok/s"),
    ("peers.transformers.first_token_ms", "transformers, first token, 1k new tokens", "ms"),
    ("peers.llama_cpp.tokens_per_s", "llama.cpp, 1k", "tok/s"),
)


def figure(report: dict[str, Any], key: str) -> float | None:
    """Return the figure of a dotted key, or None if it was not measured."""
    found: Any = report
    for name in key.split("."):
        if not isinstance(found, dict) or name not in found:
            return None
        found = found[name]
    return None if found is None else float(found)


def judge(report: dict[str, Any]) -> dict[str, bool]:
    """Return whether each measured figure meets its limit."""
    return {
        line.key: line.is_met_by(value) for line in LINES if (value := figure(report, line.key)) is not None
    }


def table(report: dict[str, Any]) -> str:
    gpu, versions, bandwidth = report["gpu"], report["versions"], report["bandwidth"]
    packages = ", ".join(f"{name} {number}" for name, number in versions.items() if number)
    lines = [
        f"{report['weights']} on {gpu['name']}, driver {gpu['driver']}; {packages}; "
        f"KV in {report.get('kv_bits', 16)} bits",
        f"Memory: copy {bandwidth['copy_tb_s']} TB/s, read {bandwidth['read_tb_s']} TB/s. "
        f"Edits: {report['edits_from']}",
        "",
        f"{'':46}{'measured':>12}  {'must':>9}  {'aim':>7}  met",
    ]
    for line in LINES:
        if (value := figure(report, line.key)) is not None:
            aim = f"{line.aim:g}" if line.aim else ""
            met = "yes" if line.is_met_by(value) else "NO"
            must = f"{line.sign} {line.must:g}"
            lines.append(f"{line.what:46}{value:>6g} {line.unit:5}  {must:>9}  {aim:>7}  {met}")
    for key, what, unit in OTHERS:
        if (value := figure(report, key)) is not None:
            lines.append(f"{what:46}{value:>6g} {unit:5}".rstrip())
    for name, peer in report["peers"].items():
        if "missing" in peer:
            lines.append(f"{name}: {peer['missing']}")
    return "\n".join(lines)

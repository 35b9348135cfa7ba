"""./check, and the files that the set-up is keyed to."""

import contextlib
import os
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests import REPOSITORY
from tests.models.families import llama_templates
from tests.setup.fake_machine import HANG_S, FakeMachine, wait_until

sys.path.insert(0, str(REPOSITORY / "setup"))

import native
import steps


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def test_check_runs_every_part(machine: FakeMachine) -> None:
    """Format, lint, types, the model, the tests and their coverage; arguments go to pytest."""
    result = machine.start("-k", "two words", script="check")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith("All passed.\n")
    for part in (
        "ruff format --check",
        "ruff check",
        "mypy",
        "models pull smollm2-135m",
        "pytest",
        "coverage report",
    ):
        assert machine.calls(part), part
    (tests,) = machine.calls("-m pytest")
    assert tests.endswith("-k two words")


@pytest.mark.parametrize(("arguments", "is_counted"), [((), False), (("--thorough",), True)])
def test_an_older_python_counts_lines_in_a_thorough_run(
    machine: FakeMachine, arguments: tuple[str, ...], is_counted: bool
) -> None:
    """Where counting takes time, a usual check does without; the tests are the same."""
    (machine.fake / "fail-version").touch()
    result = machine.start(*arguments, script="check")
    assert result.returncode == 0, result.stdout + result.stderr
    (tests,) = machine.calls("-m pytest")
    assert ("--cov " in tests) == is_counted
    assert bool(machine.calls("coverage report")) == is_counted


def test_check_fast_runs_the_unit_tests(machine: FakeMachine) -> None:
    """Format, lint and types as always, then the tests marked `unit`, without a model."""
    result = machine.start("fast", "-k", "two words", script="check")
    assert result.returncode == 0, result.stdout + result.stderr
    for part in ("ruff format --check", "ruff check", "mypy"):
        assert machine.calls(part), part
    (tests,) = machine.calls("-m pytest")
    assert "-m unit" in tests
    assert tests.endswith("-k two words")
    assert not machine.calls("models pull")


def test_check_says_first_how_long_it_took_the_last_time(machine: FakeMachine) -> None:
    """A whole run that passed is the measure of the next one."""
    first = machine.start(script="check")
    assert "min, and more where models" in first.stdout.splitlines()[0]
    (took,) = machine.clone.glob(".venvs/*/check-all.seconds")
    took.write_text("601\n")
    second = machine.start(script="check")
    assert second.stdout.splitlines()[0].endswith("then types: about 11 min: so it was the last time.")


def test_check_goes_on_after_a_failure_and_fails(machine: FakeMachine) -> None:
    """One failing part does not hide the others, and the whole fails."""
    machine.start(script="check")
    (machine.fake / "fail-format").write_text("would reformat\n")
    (machine.fake / "calls").unlink()
    result = machine.start(script="check")
    assert result.returncode == 1
    assert "FAILED   format (ruff)" in result.stdout
    assert machine.calls("-m pytest")


def test_types_are_checked_beside_the_tests(machine: FakeMachine) -> None:
    """Tests begin before it is known whether the types hold; what was found is shown, and the whole fails."""
    (machine.fake / "fail-types").write_text("x.py:1: error: not a str\n")
    machine.hold("types")
    script = machine.begin(script="check")
    wait_until(lambda: bool(machine.calls("-m pytest")))
    machine.let_go("types")
    output, _ = script.communicate(timeout=HANG_S)
    assert script.returncode == 1
    assert "FAILED   types (mypy)" in output
    assert output.count("not a str") == 1


def test_ctrl_c_ends_the_checker_of_types_too(machine: FakeMachine) -> None:
    """Nothing of a check goes on in the background."""
    machine.hold("types")
    machine.hold("tests")
    script = machine.begin(script="check")
    machine.wait_for("types")
    machine.wait_for("tests")
    machine.press_ctrl_c(script)
    script.communicate(timeout=HANG_S)
    assert script.returncode == 130
    wait_until(lambda: not is_running(script.pid), 15)  # by itself it ends after 30


def is_running(group: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, 0)
        return True
    return False


def test_check_adds_the_development_packages(machine: FakeMachine) -> None:
    """After a plain set-up, ./check installs what it needs into the same environment; ./vivace stays warm."""
    machine.start()
    assert not machine.calls("hypothesis")
    machine.start(script="check")
    assert machine.calls("hypothesis")
    assert len(machine.environments()) == 1
    assert machine.start().stderr == ""


def test_everything_is_pinned() -> None:
    """Each dependency has exactly one pin, and the pin is a version that pyproject.toml allows."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    versions = {canonicalize_name(name): Version(version) for name, version in pins}
    assert len(versions) == len(pins)
    for text in (*project["dependencies"], *project["optional-dependencies"]["dev"]):
        wanted = Requirement(text)
        if wanted.name == "triton":  # torch for CUDA comes with the only version that it takes
            continue
        assert versions[canonicalize_name(wanted.name)] in wanted.specifier, text


def test_version_to_build_comes_from_the_pins() -> None:
    """The version that is compiled is the pinned one, however its name is spelled."""
    assert native.pinned_version("a==1\nllama_cpp_python==0.3.36\n") == "0.3.36"


@pytest.mark.parametrize(
    ("line", "fraction"),
    [(b"  [12/48] cc -c x.c", 0.25), (b"[ 50%] Building", 0.5), (b"x.c:1: note [1/2]", None)],
)
def test_progress_of_a_compilation(line: bytes, fraction: float | None) -> None:
    """Lines of ninja and of make say how far it is; the compiler's own words do not."""
    assert steps.compiled_fraction(line) == fraction


def test_templates_are_kept_from_the_source(tmp_path: Path) -> None:
    """Of llama.cpp's source the chat templates and a few vocabularies stay in the cache, once."""
    models, constraints = tmp_path / "models", tmp_path / "constraints.txt"
    (models / "templates").mkdir(parents=True)
    (models / "templates" / "one.jinja").write_text("{{ x }}")
    for name in native.VOCABULARIES:
        (models / f"ggml-vocab-{name}.gguf").write_bytes(b"GGUF")
    constraints.write_text("llama-cpp-python==0.3.36\n")
    build = native.NativeBuild(REPOSITORY / "setup", constraints, tmp_path / "cache", "key")
    for _ in range(2):
        build._keep_templates(models)
    kept = {str(path.relative_to(build.templates)) for path in build.templates.rglob("*.*")}
    assert kept == {"templates/one.jinja", *(f"ggml-vocab-{name}.gguf" for name in native.VOCABULARIES)}
    assert native.VOCABULARIES == llama_templates.VOCABULARIES

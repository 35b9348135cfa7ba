"""Programs that run what others wrote: which files of a project they read by themselves.

Owns the table, also of what no hash can bind: packages that are fetched, images. A program that is not in it
runs what its command line names, and nothing else that is known here. Does not look at files (`programs`).
"""

import re
from dataclasses import dataclass

_NODE = (
    "package.json",
    "package-lock.json",
    "npm-shrinkwrap.json",
    "pnpm-lock.yaml",
    "yarn.lock",
    "bun.lock",
)
_NODE_SETTINGS = (
    ".npmrc",
    ".yarnrc.yml",
    ".pnp.cjs",
    ".pnp.loader.mjs",
    "bunfig.toml",
    "pnpm-workspace.yaml",
)
_PYTHON = (
    "pyproject.toml",
    "uv.lock",
    "poetry.lock",
    "pdm.lock",
    "Pipfile",
    "Pipfile.lock",
    "requirements.txt",
)
_PYTHON_SETTINGS = (
    "uv.toml",
    "setup.py",
    "setup.cfg",
    "tox.ini",
    "noxfile.py",
    ".python-version",
    "pdm.toml",
)
_COMPOSE = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
_OVERRIDES = tuple(name.replace(".y", ".override.y") for name in _COMPOSE)
LOADS = "what its code loads beyond the files named here"
_CALLS = "what its line calls beyond the files named here"
_RECIPES = "what its recipes call beyond the files named here"


@dataclass(frozen=True)
class Runner:
    files: tuple[str, ...] = ()  # that it reads without being told
    folders: tuple[str, ...] = ()  # in which it looks for a program that it is told
    changes: str = LOADS  # what can become another thing although no file named here does
    takes_folders: bool = False  # it runs a folder by a file in it


_NODE_RUNNER = Runner(
    (*_NODE, *_NODE_SETTINGS), ("node_modules/.bin",), "packages: those in node_modules, and those it fetches"
)
_PYTHON_RUNNER = Runner(
    (*_PYTHON, *_PYTHON_SETTINGS),
    (".venv/bin", "venv/bin"),
    "packages: those installed, and those it fetches",
)
_TABLE: dict[str, Runner] = {
    "python pypy": Runner(takes_folders=True),
    "node nodejs tsx ts-node": Runner(("package.json", "tsconfig.json"), takes_folders=True),
    "deno": Runner(("deno.json", "deno.jsonc", "deno.lock", "package.json", "import_map.json")),
    "npm npx pnpm pnpx yarn bun bunx corepack": _NODE_RUNNER,
    "uv uvx pip pipx poetry pdm hatch pipenv rye tox nox conda mamba pixi": _PYTHON_RUNNER,
    "ruby bundle bundler rake perl php composer lua": Runner(
        ("Gemfile", "Gemfile.lock", "Rakefile", "composer.json", "composer.lock", ".ruby-version")
    ),
    "make gmake": Runner(("GNUmakefile", "makefile", "Makefile"), changes=_RECIPES),
    "just": Runner(("justfile", ".justfile", "Justfile"), changes=_RECIPES),
    "task go-task": Runner(("Taskfile.yml", "Taskfile.yaml", "taskfile.yml"), changes=_RECIPES),
    "cmake ninja meson bazel scons ant": Runner(
        ("CMakeLists.txt", "build.ninja", "meson.build", "MODULE.bazel", "SConstruct", "build.xml"),
        changes=_RECIPES,
    ),
    "docker docker-compose podman podman-compose nerdctl": Runner(
        (*_COMPOSE, *_OVERRIDES, "Dockerfile", "Containerfile", ".env", ".dockerignore"),
        changes="images, and what they are built of",
    ),
    "cargo rustc": Runner(
        ("Cargo.toml", "Cargo.lock", "build.rs", ".cargo/config.toml", "src/main.rs"),
        changes="the sources, and packages that it fetches",
    ),
    "go": Runner(("go.mod", "go.sum", "main.go"), changes="the sources, and packages that it fetches"),
    "gradle mvn java dotnet sbt": Runner(
        (
            "build.gradle",
            "build.gradle.kts",
            "settings.gradle",
            "settings.gradle.kts",
            "pom.xml",
            "build.sbt",
        ),
        changes="the sources, and packages that it fetches",
    ),
    "nix nix-shell nix-run devbox devenv": Runner(
        ("flake.nix", "flake.lock", "default.nix", "shell.nix", "devbox.json", "devenv.nix"),
        changes="what is built of it",
    ),
    "direnv mise asdf": Runner(
        (".envrc", ".env", "mise.toml", ".mise.toml", ".tool-versions"), changes="what it sets up"
    ),
    "sh bash dash zsh ksh ash fish busybox": Runner(changes=_CALLS),
    "git find xargs parallel env nice nohup timeout setsid stdbuf script sudo doas watch entr": Runner(
        changes=_CALLS
    ),
    "ssh": Runner(changes="what runs on the other machine"),
}
RUNNERS = {name: runner for names, runner in _TABLE.items() for name in names.split()}
_VERSION = re.compile(r"[-.0-9]+(?:\.exe)?\Z|\.exe\Z")


def runner_of(word: str) -> Runner | None:
    """Return what is known of a program, by the last part of its path without its version."""
    name = word.rpartition("/")[2]
    return RUNNERS.get(name) or RUNNERS.get(_VERSION.sub("", name))

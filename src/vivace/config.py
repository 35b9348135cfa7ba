"""All settings in one frozen place, and the only reader of `VIVACE_*`, `XDG_*` and `HF_*` variables.

Order, last wins: defaults, `config.toml`, `VIVACE_*` variables, command-line flags (`Settings.having`).
An unknown key is an error. Does not own derived values such as thread counts: see `engine.tuning.profile`.
"""

import os
import re
import socket
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from vivace.errors import ConfigError

DEFAULT_MODEL = "qwen2.5-coder-1.5b"

ANY_CLAUDE = {"claude-*": ""}  # what clients of Anthropic's API ask for where they are told of no other name

DEVICE = r"auto|cpu|metal|(cuda|vulkan)(:\d+)?"  # what `device` may be
GPUS = r"auto|\d+(,\d+)*"  # what `gpus` may be
Count = Annotated[int, msgspec.Meta(ge=0)]
Tier = Literal["realtime", "background"]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a user may set. Every field is a key of `config.toml` and, in capitals, a `VIVACE_` variable."""

    # Models, parked KV and tuned weights: what is deleted here is downloaded or made again.
    # Default: `$XDG_CACHE_HOME/vivace`, or `~/.cache/vivace`.
    cache_dir: Path
    # Token, keys, stored responses, logs and the undo journal: what is deleted here is lost.
    # Default: `$XDG_STATE_HOME/vivace`, or `~/.local/state/vivace`.
    state_dir: Path
    # Your own `AGENTS.md`, beside `config.toml`. Default: `$XDG_CONFIG_HOME/vivace`, or `~/.config/vivace`.
    config_dir: Path | None = None
    # Where `vivace eval edits` finds its tasks, which it says how to get. Default: `evals` in `cache_dir`.
    evals_dir: Path | None = None
    model: str = DEFAULT_MODEL  # a name from `vivace models`, a .gguf file, or a folder of safetensors
    context_tokens: int = 16384  # KV cells on the CPU, shared by all sessions
    # KV cells on an NVIDIA GPU, shared by all sessions. 0: what half of its free memory holds, up to 524,288.
    gpu_context_tokens: Count = 0
    session_tokens: int = 0  # the longest a session may be; 0: what the model was trained for; more: YaRN
    # What computes: "auto" is the best that works here; "cpu", "cuda" (NVIDIA), "vulkan" or "metal" insist on
    # one, and "cuda:1" on the second NVIDIA GPU. `vivace doctor` says which it is and why not a better one.
    device: str = "auto"
    # On a machine with several NVIDIA GPUs, which of them get an engine each: "auto" is all that can run the
    # same as the best one, "1" only that one, "0,2" the first and the third. The least busy gets the next
    # session.
    gpus: str = "auto"
    cpu_engines: Annotated[int, msgspec.Meta(ge=1)] = 1  # engines where the CPU computes: one for each socket
    weight_bits: Literal[8, 16, 4] = 8  # on an NVIDIA GPU; 16: exact and slower; 4: faster, rounded more
    kv_bits: Literal[16, 8] = 16  # on an NVIDIA GPU; 8: nearly twice the context in the same memory, rounded
    threads: int = 0  # 0: chosen from the machine's cores
    tune: Literal["auto", "never"] = "auto"  # never: the model as downloaded, nothing measured
    kv_disk_gib: float = 4.0  # KV of parked sessions and of common beginnings of prompts; 0: none on disk
    # KV of parked sessions in the memory of a machine with an NVIDIA GPU, from where they are back in
    # milliseconds; the least recently used are then only on disk. 0: an eighth of the memory that is free.
    kv_memory_gib: float = 0.0
    port: int = 8377  # the warm server takes a free one if this is taken
    idle_minutes: float = 30.0  # a server that a command started ends after this time without a request
    drain_seconds: float = 30.0  # for running answers to finish when the server is told to stop
    log_format: Literal["text", "json"] = "text"  # of the server's log; json: one object a line
    keep_days: float = 30.0  # stored responses; 0: for ever
    max_models: Annotated[int, msgspec.Meta(ge=1)] = 3  # loaded at once; the least recently used goes first
    models_gib: float = 0.0  # memory that all loaded models may take together; 0: 60% of this machine's
    max_running: Annotated[int, msgspec.Meta(ge=1)] = 64  # turns at once; more wait
    max_waiting: Count = 256  # turns in line; more are refused
    requests_per_minute: Count = 0  # of each key, unless it has limits of its own; 0: no limit
    tokens_per_minute: Count = 0  # the same for tokens, read and written together
    background_requests_per_minute: Count = 0  # the same for background requests, which count apart
    background_tokens_per_minute: Count = 0  # the same for their tokens
    hub_url: str = (
        "https://huggingface.co"  # asked first for models; a mirror may be named, also in HF_ENDPOINT
    )
    offline: bool = False  # never download: what is missing is an error
    allow_scripted: bool = False  # load models `scripted:FILE`: for tests and benchmarks only
    # Tests that an edit may run, a line for the shell: in the sandbox, over a copy of the folder where you
    # work, before the change is shown. "": nothing is run.
    test_command: str = ""
    theme: Literal["dark", "light", "terminal"] = "dark"  # of `vivace`; terminal: the terminal's own colours
    # Keys of `vivace`, a table `[keys]`: ACTION = "KEY, KEY". `?` on an empty line shows the actions.
    keys: dict[str, str] = {}
    # Other servers that answer for their own models, each a table `[upstreams.NAME]`.
    upstreams: dict[str, Any] = {}
    # Which model serves which tier, a table `[tiers]`: `realtime` answers you, and is the same as `model`;
    # `background` works on tasks. A model of an upstream is UPSTREAM/NAME. Default: `model` for both.
    tiers: dict[Tier, str] = {}
    # Other names for models, a table `[aliases]`: "PATTERN" = "MODEL", where `*` stands for any letters and
    # "" for `model`. The first that fits a name that no model has counts. Names that begin with `claude-`
    # are `model` unless the table says otherwise.
    aliases: dict[str, str] = {}
    # Arrange the prompts of other programs so that less is read again: what a system text says of folder and
    # date goes behind long tools, and a block that a client moves behind its newest message stays where it
    # was, too. No word is left out or changed. false: just as the client sends it.
    stable_prompts: bool = True
    # Servers whose tools a task may call (MCP), each a table `[mcp_servers.NAME]`: `command`, `args` and
    # `env`, or `url` and `headers`.
    mcp_servers: dict[str, Any] = {}

    @property
    def models_dir(self) -> Path:
        return self.cache_dir / "models"

    @property
    def evals_folder(self) -> Path:
        return self.evals_dir or self.cache_dir / "evals"

    @property
    def kv_dir(self) -> Path:
        return self.cache_dir / "kv"

    @property
    def database(self) -> Path:
        """Stored responses and keys; per machine too: SQLite's WAL is not for shared disks."""
        return self.run_dir / "vivace.db"

    @property
    def run_dir(self) -> Path:
        """Lock, address and log of the running server; per machine, since a home may be shared by several."""
        return self.state_dir / f"run-{socket.gethostname()}"

    @property
    def token_file(self) -> Path:
        return self.state_dir / "token"

    def is_elsewhere(self, model: str) -> bool:
        """Return whether this name is that of an upstream's model: UPSTREAM/NAME."""
        upstream, slash, _ = model.partition("/")
        return bool(slash) and upstream in self.upstreams

    def model_of(self, tier: Tier) -> str:
        """Return the model that serves a tier."""
        return self.model if tier == "realtime" else self.tiers.get(tier, self.model)

    def alias(self, name: str) -> str | None:
        """Return the model that an unknown name stands for; None if it stands for none."""
        for pattern, model in (*self.aliases.items(), *ANY_CLAUDE.items()):
            if fnmatchcase(name, pattern):
                return model or self.model
        return None

    def for_tier(self, tier: Tier) -> "Settings":
        """Return the settings of a command that works in this tier. A `--model` given to it goes first."""
        return self.having(model=self.model_of(tier))

    def having(self, **changes: Any) -> "Settings":
        """Return the same settings with `changes`, checked again. None means unchanged."""
        values = msgspec.structs.asdict(self) | {k: v for k, v in changes.items() if v is not None}
        return _checked(values, "command line")

    def for_child(self, *, without: str = "") -> bytes:
        """Return the line that a child of ours reads from its standard input (`settings_of_parent`).

        They may hold keys, and what stands on a command line is seen by every user of the machine. The child
        reads the one field that is left out from its own configuration.
        """
        values = {name: value for name, value in msgspec.structs.asdict(self).items() if name != without}
        return msgspec.json.encode(values, enc_hook=lambda path: str(path.absolute())) + b"\n"


def settings_of_parent(line: bytes) -> Settings:
    """Return the settings that whoever started this process has handed over."""
    return load_settings().having(**msgspec.json.decode(line, type=dict))


def load_settings(environ: dict[str, str] | None = None) -> Settings:
    """Read defaults, the configuration file and the environment into one `Settings`."""
    env = dict(os.environ if environ is None else environ)
    values: dict[str, Any] = {
        "cache_dir": _base(env, "XDG_CACHE_HOME", ".cache"),
        "state_dir": _base(env, "XDG_STATE_HOME", ".local/state"),
        "config_dir": _base(env, "XDG_CONFIG_HOME", ".config"),
    }
    if env.get("HF_ENDPOINT"):
        values["hub_url"] = env["HF_ENDPOINT"]
    file = values["config_dir"] / "config.toml"
    if file.exists():
        values |= _with_realtime_model(_read_toml(file), file)
    return _checked(values | _from_environment(env), f"{file} or VIVACE_* variables")


def hub_token(environ: dict[str, str] | None = None) -> str:
    """Return the user's token for the model hub, or "". It is no setting, so that nothing can print it."""
    env = os.environ if environ is None else environ
    return env.get("HF_TOKEN", "").strip()


class ForeignFolders(NamedTuple):
    """Where other programs keep model files, whether or not they are there."""

    hub: Path
    lm_studio: tuple[Path, ...]
    ollama: tuple[Path, ...]


def foreign_folders(environ: dict[str, str] | None = None) -> ForeignFolders:
    """Return the folders by the variables that those programs read themselves."""
    env = os.environ if environ is None else environ
    home = Path(env.get("HOME") or Path.home())
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    hub_home = Path(env.get("HF_HOME") or cache / "huggingface")
    usual = (home / ".ollama/models", Path("/usr/share/ollama/.ollama/models"))  # the second: its service's
    return ForeignFolders(
        hub=Path(env.get("HF_HUB_CACHE") or hub_home / "hub"),
        lm_studio=(home / ".lmstudio/models", home / ".cache/lm-studio/models"),
        ollama=(Path(env["OLLAMA_MODELS"]),) if env.get("OLLAMA_MODELS") else usual,
    )


def _base(env: dict[str, str], variable: str, fallback: str) -> Path:
    root = Path(env[variable]) if env.get(variable) else Path(env.get("HOME") or Path.home()) / fallback
    return root / "vivace"


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", "Correct it or move it away.") from error


def _with_realtime_model(values: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return the file's settings with the realtime tier's model as `model`. Check that upstreams exist."""
    tiers = values.get("tiers")
    if not isinstance(tiers, dict):
        return values
    for tier, model in tiers.items():
        upstream, slash, _ = str(model).partition("/")
        is_path = upstream in ("", ".", "..", "~") or ":" in upstream or Path(str(model)).exists()
        if not model or (slash and not is_path and upstream not in values.get("upstreams", {})):
            raise ConfigError(
                f'{file}: tiers.{tier} = "{model}" names no model: there is no upstream "{upstream}".',
                f"Add a table [upstreams.{upstream or 'NAME'}] with its url, or choose from `vivace models`.",
            )
    realtime = tiers.get("realtime", values.get("model"))
    if values.get("model", realtime) != realtime:
        raise ConfigError(
            f"{file} names two models for realtime: model and tiers.realtime.", "Keep one of them."
        )
    return values | ({"model": realtime} if realtime else {})


def _from_environment(env: dict[str, str]) -> dict[str, str]:
    known = Settings.__struct_fields__
    return {name: env[f"VIVACE_{name.upper()}"] for name in known if env.get(f"VIVACE_{name.upper()}")}


def _checked(values: dict[str, Any], source: str) -> Settings:
    device = values.get("device", "auto")
    if not (isinstance(device, str) and re.fullmatch(DEVICE, device)):
        raise ConfigError(
            f"Bad setting in {source}: there is no device {device!r}.",
            'Choose "auto", "cpu", "cuda", "vulkan" or "metal"; "cuda:1" is the second NVIDIA GPU.',
        )
    gpus = values.get("gpus", "auto")
    if not re.fullmatch(GPUS, str(gpus)) or str(gpus) == "0":
        raise ConfigError(
            f"Bad setting in {source}: gpus = {gpus!r} names no GPUs.",
            'Choose "auto", a number of them, or their indices as in "0,2"; for the CPU set device to "cpu".',
        )
    values = values | {"gpus": str(gpus)}
    try:
        return msgspec.convert(values, Settings, strict=False, dec_hook=_decode)
    except msgspec.ValidationError as error:
        known = ", ".join(Settings.__struct_fields__)
        raise ConfigError(f"Bad setting in {source}: {error}", f"Known settings: {known}.") from error


def _decode(kind: type, value: Any) -> Any:
    if kind is Path:
        return Path(value).expanduser()
    raise NotImplementedError(kind)

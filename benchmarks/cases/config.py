"""All settings in one frozen place, and the only reader of `VIVACE_*` and `XDG_*` variables.

Order, last wins: defaults, `config.toml`, `VIVACE_*` variables, command-line flags (`Settings.having`).
An unknown key is an error. Does not own derived values such as thread counts: see `engine.plan`.
"""

import os
import socket
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from vivace.errors import ConfigError

DEFAULT_MODEL = "qwen2.5-coder-1.5b"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a user may set. Every field is a key of `config.toml` and, in capitals, a `VIVACE_` variable."""

    cache_dir: Path  # models, wheels: may be deleted, comes back by download
    state_dir: Path  # token, logs, undo journal: not to be deleted lightly
    model: str = DEFAULT_MODEL
    context_tokens: int = 16384  # KV cells shared by all sessions
    threads: int = 0  # 0: chosen from the machine's cores
    port: int = 8377  # the warm server takes a free one if this is taken
    idle_minutes: float = 30.0
    hub_url: str = "https://huggingface.co"
    offline: bool = False

    @property
    def models_dir(self) -> Path:
        return self.cache_dir / "models"

    @property
    def run_dir(self) -> Path:
        """Lock, address and log of the running server; per machine, since a home may be shared by several."""
        return self.state_dir / f"run-{socket.gethostname()}"

    @property
    def token_file(self) -> Path:
        return self.state_dir / "token"

    def having(self, **changes: Any) -> "Settings":
        """The same settings with `changes`, checked again; None means unchanged."""
        values = msgspec.structs.asdict(self) | {k: v for k, v in changes.items() if v is not None}
        return _checked(values, "command line")


def load_settings(environ: dict[str, str] | None = None) -> Settings:
    """Read defaults, the configuration file and the environment into one `Settings`."""
    env = dict(os.environ if environ is None else environ)
    values: dict[str, Any] = {
        "cache_dir": _base(env, "XDG_CACHE_HOME", ".cache"),
        "state_dir": _base(env, "XDG_STATE_HOME", ".local/state"),
    }
    file = _base(env, "XDG_CONFIG_HOME", ".config") / "config.toml"
    if file.exists():
        values |= _read_toml(file)
    return _checked(values | _from_environment(env), f"{file} or VIVACE_* variables")


def _base(env: dict[str, str], variable: str, fallback: str) -> Path:
    root = Path(env[variable]) if env.get(variable) else Path(env.get("HOME") or Path.home()) / fallback
    return root / "vivace"


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", "Correct it or move it away.") from error


def _from_environment(env: dict[str, str]) -> dict[str, str]:
    known = Settings.__struct_fields__
    return {name: env[f"VIVACE_{name.upper()}"] for name in known if env.get(f"VIVACE_{name.upper()}")}


def _checked(values: dict[str, Any], source: str) -> Settings:
    try:
        return msgspec.convert(values, Settings, strict=False, dec_hook=_decode)
    except msgspec.ValidationError as error:
        known = ", ".join(Settings.__struct_fields__)
        raise ConfigError(f"Bad setting in {source}: {error}", f"Known settings: {known}.") from error


def _decode(kind: type, value: Any) -> Any:
    if kind is Path:
        return Path(value).expanduser()
    raise NotImplementedError(kind)

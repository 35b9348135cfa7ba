"""The clients that `vivace launch` knows: what each is called, how to get it, and what it is told.

Owns these facts. In texts, `$root` is the server's URL and `$url` the same with `/v1`, `$key` the client's
key, `$model` and `$small` the models' names, `$window` and `$output` tokens, `$folder` its private folder.
Does not own what is put there (`plan`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

CODEX_PROVIDER = (
    'model_providers.vivace={name="Vivace",base_url="$url",model_catalog_url="$url/models/codex",'
    'env_key="VIVACE_API_KEY",wire_api="responses",supports_websockets=true}'
)
# Without these Codex calls its maker's servers at each start, and its prompts are three times as long.
CODEX_SETTINGS = (
    'model="$model"',
    'model_provider="vivace"',
    CODEX_PROVIDER,
    'web_search="disabled"',
    "check_for_update_on_startup=false",
    "include_collaboration_mode_instructions=false",
    *(
        f"features.{name}=false"
        for name in ("apps", "daemon_auto_start", "goals", "multi_agent", "plugins", "view_image")
    ),
    "skills.include_instructions=false",
    "skills.bundled.enabled=false",
    "analytics.enabled=false",
)
CLAUDE_VARIABLES = {
    "ANTHROPIC_BASE_URL": "$root",
    "ANTHROPIC_AUTH_TOKEN": "$key",
    "ANTHROPIC_MODEL": "$model",
    "ANTHROPIC_DEFAULT_OPUS_MODEL": "$model",
    "ANTHROPIC_DEFAULT_SONNET_MODEL": "$model",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": "$small",
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    "CLAUDE_CODE_MAX_RETRIES": "5",  # 18 s; ten take minutes, and `claude -p` says nothing meanwhile
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
}
CLAUDE_SETTINGS = ",\n".join(f'    "{name}": "{value}"' for name, value in CLAUDE_VARIABLES.items())
OPENCODE_CONFIG = """\
{
  "model": "vivace/$model",
  "small_model": "vivace/$small",
  "share": "disabled",
  "autoupdate": false,
  "provider": {
    "vivace": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "Vivace",
      "options": {"baseURL": "$url", "apiKey": "{env:VIVACE_API_KEY}"},
      "models": {"$model": {"name": "$model", "limit": {"context": $window, "output": $output}}}
    }
  }
}
"""
QWEN_SETTINGS = """\
{
  "privacy": {"usageStatisticsEnabled": false},
  "general": {"enableAutoUpdate": false},
  "security": {"auth": {"selectedType": "openai"}}
}
"""
CONTINUE_CONFIG = """\
name: Vivace
version: 1.0.0
schema: v1
models:
  - name: "$model"
    provider: openai
    model: "$model"
    apiBase: "$url"
    apiKey: "$key"
    roles: [chat, edit, apply]
    capabilities: [tool_use]
"""


@dataclass(frozen=True)
class Prompt:
    """What a client tells a model before the user's first word. Some clients know a shorter one, too."""

    name: str
    tokens: int
    arguments: tuple[str, ...] = ()
    weights_gb: float = 0.0  # smaller models make nothing of it


@dataclass(frozen=True)
class Client:
    name: str  # for `vivace launch`
    title: str
    program: str
    package: str
    install: str  # the command that installs the package
    tested: str  # its version in our tests
    transport: str
    prompts: tuple[Prompt, ...]  # the longest first
    variables: Mapping[str, str]
    arguments: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # of its private folder, by name
    removed: tuple[str, ...] = ()  # variables of the user's that would count for more than these


CLAUDE = Client(
    name="claude",
    title="Claude Code",
    program="claude",
    package="@anthropic-ai/claude-code",
    install="npm install -g @anthropic-ai/claude-code",
    tested="2.1.197",
    transport="Anthropic's Messages API",
    prompts=(
        Prompt("full", 21_400, weights_gb=10),
        Prompt("tools", 3_000, ("--tools", "Read,Edit,Write,Bash"), weights_gb=4),
        Prompt("bare", 1_030, ("--bare",)),
    ),
    variables=CLAUDE_VARIABLES,
    # The `env` of the user's or of a project's settings would count for more than the variables alone.
    arguments=("--settings", "$folder/settings.json"),
    files={"settings.json": f'{{\n  "env": {{\n{CLAUDE_SETTINGS}\n  }},\n  "model": "$model"\n}}\n'},
    removed=("ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
)
CODEX = Client(
    name="codex",
    title="Codex CLI",
    program="codex",
    package="@openai/codex",
    install="npm install -g @openai/codex",
    tested="0.166.0",
    transport="the Responses API on one WebSocket",
    prompts=(Prompt("full", 2_500),),
    variables={"VIVACE_API_KEY": "$key"},
    arguments=tuple(word for setting in CODEX_SETTINGS for word in ("-c", setting)),
)
OPENCODE = Client(
    name="opencode",
    title="opencode",
    program="opencode",
    package="opencode-ai",
    install="npm install -g opencode-ai",
    tested="1.18.33",
    transport="chat completions",
    prompts=(Prompt("full", 7_100),),
    variables={
        "VIVACE_API_KEY": "$key",
        "OPENCODE_CONFIG_CONTENT": OPENCODE_CONFIG,
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    },
)
QWEN = Client(
    name="qwen",
    title="Qwen Code",
    program="qwen",
    package="@qwen-code/qwen-code",
    install="npm install -g @qwen-code/qwen-code",
    tested="0.15.10",
    transport="chat completions",
    prompts=(Prompt("full", 14_800),),
    variables={
        "OPENAI_BASE_URL": "$url",
        "OPENAI_API_KEY": "$key",
        "OPENAI_MODEL": "$model",
        "QWEN_CODE_SYSTEM_SETTINGS_PATH": "$folder/settings.json",
    },
    arguments=("--auth-type", "openai", "--model", "$model"),
    files={"settings.json": QWEN_SETTINGS},
)
CONTINUE = Client(
    name="continue",
    title="Continue",
    program="cn",
    package="@continuedev/cli",
    install="npm install -g @continuedev/cli",
    tested="1.5.47",
    transport="chat completions",
    prompts=(Prompt("full", 1_300),),
    variables={"CONTINUE_TELEMETRY_ENABLED": "0"},
    arguments=("--config", "$folder/config.yaml"),
    files={"config.yaml": CONTINUE_CONFIG},
)
AIDER = Client(
    name="aider",
    title="aider",
    program="aider",
    package="aider-chat",
    install="pipx install aider-chat",
    tested="0.86.2",
    transport="chat completions",
    prompts=(
        Prompt("diff", 2_400, ("--edit-format", "diff"), weights_gb=10),
        Prompt("whole", 700, ("--edit-format", "whole")),
    ),
    variables={
        "AIDER_OPENAI_API_BASE": "$url",  # this counts for more than its configuration files,
        "OPENAI_BASE_URL": "$url",  # and this for more than what it makes of that
        "AIDER_OPENAI_API_KEY": "$key",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    },
    arguments=(
        *("--model", "openai/$model", "--weak-model", "openai/$small"),
        *("--no-analytics", "--no-check-update", "--no-show-release-notes", "--no-show-model-warnings"),
    ),
)
CLIENTS = {each.name: each for each in (CLAUDE, CODEX, OPENCODE, QWEN, CONTINUE, AIDER)}

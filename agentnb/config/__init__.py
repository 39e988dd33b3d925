"""Settings and profiles of a project, read from its `agentnb.yaml`.

All mistakes in the file are reported at once. The result is a value that knows when its files have
changed. pydantic and YAML are loaded only if there is a file.
"""

from agentnb.config.config import Config, EngineEntry, McpEntry, OpenAIServer
from agentnb.config.load import config_of, load_config, reread

__all__ = [
    "Config",
    "EngineEntry",
    "McpEntry",
    "OpenAIServer",
    "config_of",
    "load_config",
    "reread",
]

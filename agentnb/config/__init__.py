"""Settings and profiles of a project, read from its `agentnb.yaml`.

The file is read as a whole when a session is made, and all that is wrong with it is told at once;
from then on it is a value. pydantic and YAML are loaded only where there is a file.
"""

from agentnb.config.config import Config, OpenAIServer
from agentnb.config.load import config_of, load_config

__all__ = ["Config", "OpenAIServer", "config_of", "load_config"]

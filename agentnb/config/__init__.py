"""Settings and profiles of a project, read from its `agentnb.yaml`.

The file is read as a whole, and all that is wrong with it is told at once. What was read is a
value, which knows when the file says something else by now. pydantic and YAML are loaded only where
there is a file.
"""

from agentnb.config.config import Config, OpenAIServer
from agentnb.config.load import config_of, load_config, reread

__all__ = ["Config", "OpenAIServer", "config_of", "load_config", "reread"]

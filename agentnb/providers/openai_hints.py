"""What a person can do when a server of chat completions does not do its part.

OpenAI itself wants a key and a model's name; a server of one's own has to run, to have the model,
and to be able to do what it is asked for.
"""

from __future__ import annotations

from typing import NamedTuple

from agentnb.core.errors import MissingKey
from agentnb.providers.error_mapping import Hints


class Names(NamedTuple):
    """The names under which a person sets what is sent, as sentences hold them."""

    base_url: str
    key: str


_REFUSED = {
    r"(?i)not support tools?\b|\btools?\b.*--(jinja|enable-auto-tool)": (
        "Use a model that can call tools, start the server with what its words ask for, or go on "
        "without tools"
    ),
    r"(?i)max_(completion_)?tokens|context (length|size|window)|context_length": (
        "Set a smaller `max_output_tokens`, ask for less, or use a model with more context"
    ),
}


def hints_on(names: Names, *, is_public: bool) -> Hints:
    """What to say of a server; `is_public` for OpenAI's own."""
    if is_public:
        unreachable = f"Check the network, and {names.base_url} if it is set"
        unknown_model = f"Check the model's name, and {names.base_url} if it is set"
    else:
        unreachable = (
            "Check the network, that the server runs (for Ollama: `ollama serve`), and "
            f"{names.base_url} if it is set"
        )
        unknown_model = (
            "Check the model's name (Ollama lists its own by `ollama list` and fetches others by "
            f"`ollama pull`), and that {names.base_url} ends with what the server wants, mostly "
            "`/v1`"
        )
    return Hints(
        base_url=names.base_url,
        key=names.key,
        unreachable=unreachable,
        unknown_model=unknown_model,
        refused=_REFUSED,
    )


def missing_key() -> MissingKey:
    """OpenAI itself was meant, and there is nothing that could be sent to it as a key."""
    return MissingKey(
        "There is no key for the OpenAI API: set the environment variable `OPENAI_API_KEY`; or, "
        "for a server of your own (Ollama, vLLM, llama.cpp), which needs none, `OPENAI_BASE_URL`, "
        "for example `http://localhost:11434/v1`; or use `--model demo` "
        '(`model="demo"`), which needs neither.'
    )

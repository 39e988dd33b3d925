"""What an agent knows when it starts: who it is, what it remembers, what was said before.

A context is a value of its own. It shares nothing that can change with whoever made it, and
a child's context is built from nothing: what is not handed over here, the child cannot see.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from agentnb.core.types import AgentConfig, Briefing, Message, Role, TextBlock


@dataclass(frozen=True)
class AgentContext:
    """All that goes into an agent's prompt and the start of its conversation."""

    agent_config: AgentConfig = field(default_factory=AgentConfig)
    soul_content: str = ""
    """The personality, shared by all agents of a run."""
    identity_content: str = ""
    user_content: str = ""
    """About the person; never handed to a sub-agent."""
    memories: tuple[str, ...] = ()
    """Of this conversation; never handed to a sub-agent."""
    recalled_memories: tuple[str, ...] = ()
    """From earlier on; handed to a sub-agent only by `inherit_memory`."""
    conversation_history: tuple[Message, ...] = ()
    """Also as `{"role": …, "content": text}`, which is made a message."""
    system_prompt: str = ""
    """The person's own instructions for the root; empty for the built-in ones."""
    verbose: bool = False
    task: str = ""
    """A sub-agent's task; empty for the root, whose task is a message."""
    depth: int = 0
    """0 for the root."""
    briefings: tuple[Briefing, ...] = ()
    """What a sub-agent that was started by a tool is told before its task; for it alone."""

    def __post_init__(self) -> None:
        for name in ("soul_content", "identity_content", "user_content", "system_prompt"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"`{name}` must be a text, not {getattr(self, name)!r}.")
        # A list is welcome, but a later change of it must not reach in.
        for name in ("memories", "recalled_memories"):
            object.__setattr__(self, name, texts(getattr(self, name), name))
        history = tuple(_message(item) for item in self.conversation_history)
        object.__setattr__(self, "conversation_history", history)

    def child_for_task(
        self, task: str, depth: int, *, inherit_memory: bool = False
    ) -> AgentContext:
        """Make the context of a sub-agent: the same agent, with a task and without a past.

        Args:
            task: What the sub-agent has to do.
            depth: Where it stands in the tree; the root's children are at 1.
            inherit_memory: Whether it gets this agent's recalled memories as well.
        """
        child = object.__new__(AgentContext)  # of parts that were checked already
        child.__dict__.update(
            _BLANK,
            agent_config=self.agent_config,
            soul_content=self.soul_content,
            identity_content=self.identity_content,
            recalled_memories=self.recalled_memories if inherit_memory else (),
            verbose=self.verbose,
            task=task,
            depth=depth,
        )
        return child


def texts(values: Iterable[str], name: str) -> tuple[str, ...]:
    """`values`, if they are a row of texts.

    Raises:
        ValueError: They are not: a single text is none.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"`{name}` must be a list of texts, not {values!r}.")
    checked = tuple(values)
    for value in checked:
        if not isinstance(value, str):
            raise ValueError(f"`{name}` must hold texts, not {value!r}.")
    return checked


def _message(item: object) -> Message:
    match item:
        case Message():
            return item
        case {"role": "user" | "assistant" as role, "content": str(text)}:
            return Message(Role(role), (TextBlock(text),))
    raise ValueError(f"`conversation_history` must hold messages, not {item!r}.")


_BLANK = vars(AgentContext())

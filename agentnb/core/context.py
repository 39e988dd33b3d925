"""What an agent knows when it starts: its identity, its memories, the earlier conversation.

A context shares no mutable state with its creator. A child's context starts empty: the child sees
only what this module passes on. All system prompts are built here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from agentnb.core.prompt import SystemPromptBuilder, joined, listed
from agentnb.core.text import literal
from agentnb.core.types import AgentConfig, Briefing, Message, Role, TextBlock


@dataclass(frozen=True)
class AgentContext:
    """Everything that goes into an agent's prompt and the start of its conversation."""

    agent_config: AgentConfig = field(default_factory=AgentConfig)
    soul_content: str = ""
    """The personality, shared by all agents of a run."""
    identity_content: str = ""
    user_content: str = ""
    """A text about the person; never passed to a sub-agent."""
    memories: tuple[str, ...] = ()
    """Memories of this conversation; never passed to a sub-agent."""
    recalled_memories: tuple[str, ...] = ()
    """Memories from earlier conversations; passed to a sub-agent only by `inherit_memory`."""
    conversation_history: tuple[Message, ...] = ()
    """Earlier messages; `{"role": …, "content": text}` is converted to one."""
    system_prompt: str = ""
    """For the root: the person's own instructions, empty for the built-in ones. For a sub-agent:
    its whole system prompt, as it is sent."""
    verbose: bool = False
    task: str = ""
    """A sub-agent's task; empty for the root, whose task is a message."""
    depth: int = 0
    """0 for the root."""
    briefings: tuple[Briefing, ...] = ()
    """Texts before a sub-agent's task in its prompt; not passed on."""
    max_depth: int = 3
    """Deepest level of the run. This and the following fields determine what prompts say about
    delegation; the orchestrator sets them for each run."""
    by_block: bool = True
    """Whether agents may delegate by a spawn block."""
    nested_spawn: bool = False
    """Whether sub-agents may have the spawn tools, too."""
    profiles: str = ""
    """Description of the profiles, for agents with spawn tools."""

    def __post_init__(self) -> None:
        for name in ("soul_content", "identity_content", "user_content", "system_prompt"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"`{name}` must be a string, not {literal(getattr(self, name))}.")
        # A list is accepted; the copy protects this value from later changes of it.
        for name in ("memories", "recalled_memories"):
            object.__setattr__(self, name, texts(getattr(self, name), name))
        history = tuple(_message(item) for item in self.conversation_history)
        object.__setattr__(self, "conversation_history", history)

    def root_prompt(self, *, has_spawn_tools: bool = False) -> str:
        """Build the whole system prompt of a run's root.

        Args:
            has_spawn_tools: Whether the root has the spawn tools, and so needs the profiles.
        """
        own = SystemPromptBuilder.build_with_capabilities(
            self.agent_config,
            self.soul_content,
            self.identity_content,
            self.user_content,
            session_memory=listed(self.memories),
            long_term_memory=listed(self.recalled_memories),
            instructions=self.system_prompt,
            depth=self.depth,
            max_depth=self.max_depth if self.by_block else self.depth,
        )
        return joined(own, self.profiles if has_spawn_tools else "")

    def may_delegate_at(self, depth: int) -> bool:
        """Whether an agent at this depth may start sub-agents by a spawn block."""
        return self.by_block and depth < self.max_depth

    def for_row(self, system: str, model: str = "") -> AgentContext:
        """Create the context of a row's agent: only its system prompt.

        Its `system_prompt` is the whole system prompt, as it is sent.

        Args:
            system: The text that all rows share.
            model: Its own `provider/model`; by default this agent's.
        """
        config = replace(self.agent_config, model=model) if model else self.agent_config
        may_use_tools = self.nested_spawn and self.max_depth > 1
        if self.max_depth > 1:
            system = SystemPromptBuilder.build_for_row(
                system,
                1,
                max_depth=self.max_depth if self.by_block else 1,
                profiles=self.profiles if may_use_tools else "",
            )
        child = object.__new__(AgentContext)
        child.__dict__.update(
            _BLANK,
            agent_config=config,
            system_prompt=system,
            depth=1,
            max_depth=self.max_depth,
            by_block=self.by_block,
            nested_spawn=self.nested_spawn,
            profiles=self.profiles,
        )
        return child

    def child_for_task(
        self,
        task: str,
        depth: int,
        *,
        inherit_memory: bool = False,
        model: str = "",
        briefings: Sequence[Briefing] = (),
    ) -> AgentContext:
        """Create the context of a sub-agent: the same agent with a task and without a history.

        Its `system_prompt` is the sub-agent's whole system prompt, as it is sent.

        Args:
            task: The sub-agent's task.
            depth: Its depth in the tree; the root's children are at 1.
            inherit_memory: Whether it gets this agent's recalled memories.
            model: Its own `provider/model`; by default this agent's.
            briefings: Texts before its task in its prompt, in this order.
        """
        config = replace(self.agent_config, model=model) if model else self.agent_config
        recalled = self.recalled_memories if inherit_memory else ()
        may_use_tools = self.nested_spawn and depth < self.max_depth
        child = object.__new__(AgentContext)  # without `__post_init__`: these parts are checked
        child.__dict__.update(
            _BLANK,
            agent_config=config,
            soul_content=self.soul_content,
            identity_content=self.identity_content,
            recalled_memories=recalled,
            system_prompt=SystemPromptBuilder.build_for_sub_agent(
                config,
                self.soul_content,
                self.identity_content,
                task,
                depth,
                max_depth=self.max_depth,
                long_term_memory=listed(recalled),
                briefings=briefings,
                profiles=self.profiles if may_use_tools else "",
                by_block=self.by_block,
            ),
            verbose=self.verbose,
            task=task,
            depth=depth,
            briefings=tuple(briefings),
            max_depth=self.max_depth,
            by_block=self.by_block,
            nested_spawn=self.nested_spawn,
            profiles=self.profiles,
        )
        return child


def texts(values: Iterable[str], name: str) -> tuple[str, ...]:
    """`values` as a tuple of texts.

    Raises:
        ValueError: `values` is not a list of texts; a single text is not accepted either.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"`{name}` must be a list of strings, not {literal(values)}.")
    checked = tuple(values)
    for value in checked:
        if not isinstance(value, str):
            raise ValueError(f"`{name}` must hold strings, not {literal(value)}.")
    return checked


def _message(item: object) -> Message:
    match item:
        case Message():
            return item
        case {"role": "user" | "assistant" as role, "content": str(text)}:
            return Message(Role(role), (TextBlock(text),))
    raise ValueError(f"`conversation_history` must hold messages, not {literal(item)}.")


_BLANK = vars(AgentContext())

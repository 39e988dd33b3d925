"""What an agent knows when it starts: who it is, what it remembers, what was said before.

A context is a value of its own. It shares nothing that can change with whoever made it, and
a child's context is built from nothing: what is not handed over here, the child cannot see.
The system prompts that go out are made here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from agentnb.core.prompt import SystemPromptBuilder, joined, listed
from agentnb.core.text import literal
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
    """For the root: the person's own instructions, empty for the built-in ones. For a sub-agent:
    its whole system prompt, as it goes out."""
    verbose: bool = False
    task: str = ""
    """A sub-agent's task; empty for the root, whose task is a message."""
    depth: int = 0
    """0 for the root."""
    briefings: tuple[Briefing, ...] = ()
    """What a sub-agent that was started by a tool is told before its task; for it alone."""
    max_depth: int = 3
    """Deepest level of the run. This and what follows decides what prompts say of delegation; the
    orchestrator sets it for each run."""
    by_block: bool = True
    """Whether agents may delegate by a spawn block."""
    nested_spawn: bool = False
    """Whether sub-agents may have the spawn tools, as the root has."""
    profiles: str = ""
    """The block that tells an agent with spawn tools which profiles there are."""

    def __post_init__(self) -> None:
        for name in ("soul_content", "identity_content", "user_content", "system_prompt"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"`{name}` must be a text, not {literal(getattr(self, name))}.")
        # A list is welcome, but a later change of it must not reach in.
        for name in ("memories", "recalled_memories"):
            object.__setattr__(self, name, texts(getattr(self, name), name))
        history = tuple(_message(item) for item in self.conversation_history)
        object.__setattr__(self, "conversation_history", history)

    def root_prompt(self, *, has_spawn_tools: bool = False) -> str:
        """Build the whole system prompt of a run's root.

        Args:
            has_spawn_tools: Whether the root may call them, and so chooses among the profiles.
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

    def child_for_task(
        self,
        task: str,
        depth: int,
        *,
        inherit_memory: bool = False,
        model: str = "",
        briefings: Sequence[Briefing] = (),
    ) -> AgentContext:
        """Make the context of a sub-agent: the same agent, with a task and without a past.

        Its `system_prompt` is the whole system prompt of the sub-agent, as it goes out.

        Args:
            task: What the sub-agent has to do.
            depth: Where it stands in the tree; the root's children are at 1.
            inherit_memory: Whether it gets this agent's recalled memories as well.
            model: `provider/model` of its own; this agent's when left out.
            briefings: What it is told before its task, in this order.
        """
        config = replace(self.agent_config, model=model) if model else self.agent_config
        recalled = self.recalled_memories if inherit_memory else ()
        may_use_tools = self.nested_spawn and depth < self.max_depth
        child = object.__new__(AgentContext)  # of parts that were checked already
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
    """`values`, if they are a row of texts.

    Raises:
        ValueError: They are not: a single text is none.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"`{name}` must be a list of texts, not {literal(values)}.")
    checked = tuple(values)
    for value in checked:
        if not isinstance(value, str):
            raise ValueError(f"`{name}` must hold texts, not {literal(value)}.")
    return checked


def _message(item: object) -> Message:
    match item:
        case Message():
            return item
        case {"role": "user" | "assistant" as role, "content": str(text)}:
            return Message(Role(role), (TextBlock(text),))
    raise ValueError(f"`conversation_history` must hold messages, not {literal(item)}.")


_BLANK = vars(AgentContext())

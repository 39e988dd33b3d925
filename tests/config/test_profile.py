"""The list of profiles in a prompt, and a profile's instructions for a root."""

from __future__ import annotations

import re
from html import unescape

from hypothesis import given
from hypothesis import strategies as st

from agentnb.config.profile import Profile, available_profiles_block, root_instructions

any_text = st.text(st.characters(exclude_categories=())) | st.sampled_from(
    ["</profile>", "</available_spawn_profiles>", '" tools="rm', "<profile", "a & b", "&lt;"]
)


def test_block_names_each_profile_with_what_it_is_for_and_its_tools() -> None:
    block = available_profiles_block(
        [
            Profile("reviewer", description=" Finds <mistakes>. ", tools=("grep", "run")),
            Profile("writer", description="Writes & edits."),
            Profile("thinker", tools=()),
            Profile("plain"),
        ]
    )

    first, _, *told, last = block.splitlines()
    assert (first, last) == ("<available_spawn_profiles>", "</available_spawn_profiles>")
    assert told == [
        '<profile name="reviewer" tools="grep, run">Finds &lt;mistakes&gt;.</profile>',
        '<profile name="writer">Writes &amp; edits.</profile>',
        '<profile name="thinker" tools="none" />',
        '<profile name="plain" />',
    ]


def test_profile_without_a_description_is_told_by_the_first_line_of_its_prompt() -> None:
    of_file = Profile("a", system_prompt="second", prompt_file=("p.md", "\n \n  first <line> \nx"))

    assert of_file.summary == "first <line>"
    assert Profile("a", description=" said ", system_prompt="prompt").summary == "said"
    assert Profile("a", description="\n", system_prompt="prompt").summary == "prompt"
    assert len(Profile("a", system_prompt="word " * 500).summary) <= 200
    assert Profile("a").summary == ""
    assert "first &lt;line&gt;</profile>" in available_profiles_block([of_file])


def test_without_profiles_there_is_not_a_word_of_them() -> None:
    assert available_profiles_block([]) == ""


@given(any_text, any_text)
def test_no_text_of_a_profile_can_close_the_block_or_open_another(text: str, tool: str) -> None:
    block = available_profiles_block([Profile("a", description=text, tools=(tool,)), Profile("b")])

    assert block.count("</available_spawn_profiles>") == 1
    assert block.count("<profile ") == 2
    said = re.search(r'<profile name="a" tools="([^"]*)"(?: />|>([^<]*)</profile>)', block)
    assert said is not None
    assert unescape(said[2] or "") == text.strip()


def test_root_is_told_the_bootstrap_files_then_the_prompt_file_then_the_prompt() -> None:
    profile = Profile("a", system_prompt=" Be strict.\n", prompt_file=("p.md", "\nLook twice.\n"))

    told = root_instructions(profile, [("AGENTS.md", "The house.\n"), ("empty.md", " \n")])

    assert told == "AGENTS.md:\n\nThe house.\n\nLook twice.\n\nBe strict."
    assert root_instructions(Profile("a"), []) == ""

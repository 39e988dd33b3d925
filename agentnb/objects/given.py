"""What a person gives to an agent: objects by name, or words that name objects and files.

`give={"df": df}` has names and objects; `--give df,prices,notes/*.pdf` has words. A word that could
be a name of Python is one of the notebook; any other is a path or a pattern of paths, and each file
that it finds becomes a `Path`.
"""

from __future__ import annotations

import glob
import keyword
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from unicodedata import normalize

from agentnb.core.shown import listed
from agentnb.core.text import literal, visible
from agentnb.errors import NotebookError
from agentnb.objects.short import type_name

MOST_FILES = 200
"""That one word may find."""
OF_THE_WORKER = frozenset({"In", "Out", "exit", "get_ipython", "quit"})
"""Names that every IPython kernel has for itself."""


def objects_given(
    give: Mapping[str, object] | Sequence[str] | str | None,
    namespace: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Check what a person gives, and return it as objects by name, in the order given.

    Args:
        give: Objects by name; or words, as a list or with commas between them, which are looked up.
        namespace: Where words are looked up: the names of the notebook.

    Raises:
        ValueError: A name cannot be given; the message says what to do. For words it is a
            `NotebookError`.
    """
    if give is None:
        return {}
    if isinstance(give, Mapping):
        given: dict[str, object] = {}
        for name, value in give.items():
            why = _no_name(name)
            if why:
                raise ValueError(f"`give` cannot have the name {literal(name)}: {why}.")
            if normalize("NFKC", name) in given:
                raise ValueError(f"`give` has the name {literal(name)} twice: rename one.")
            given[normalize("NFKC", name)] = value
        return given
    if isinstance(give, str):
        give = give.split(",")
    # A data frame can be iterated, too: it is no list of words.
    if not isinstance(give, Sequence):
        raise ValueError(
            f"`give` must be objects by name, such as {{'df': df}}, not a {type_name(type(give))}."
        )
    for word in give:
        if not isinstance(word, str):
            raise ValueError(
                f"`give` has a {type_name(type(word))} where a name belongs: give objects by name, "
                "such as {'df': df}."
            )
    return _looked_up([word.strip() for word in give if word.strip()], namespace or {})


def _no_name(name: object) -> str:
    """Why something cannot be the name of an object, with the fix; empty if it can."""
    if not isinstance(name, str) or not name.isidentifier():
        return "a name has letters, digits and `_`, and begins with a letter"
    if keyword.iskeyword(name):
        return "it is a keyword of Python, so choose another name"
    if name.startswith("_"):
        return "a name may not begin with `_`, so choose another one"
    if name in OF_THE_WORKER:
        return "every kernel uses this name itself, so choose another one"
    return ""


def _looked_up(words: Sequence[str], namespace: Mapping[str, object]) -> dict[str, object]:
    # Names first: a file takes no name that is given.
    taken = {normalize("NFKC", word) for word in words if word.isidentifier()}
    given: dict[str, object] = {}
    files: set[Path] = set()
    for word in words:
        if word.isidentifier():
            name = normalize("NFKC", word)
            given[name] = _of_notebook(name, namespace)
            continue
        for path in _files(word):
            if path not in files:
                files.add(path)
                given[_name_for(path, taken)] = path
    return given


def _of_notebook(name: str, namespace: Mapping[str, object]) -> object:
    why = _no_name(name)
    if why:
        raise NotebookError(f"`--give` cannot have {literal(name)}: {why}.")
    if name in namespace:
        return namespace[name]
    known = [each for each in namespace if isinstance(each, str) and not _no_name(each)]
    near = get_close_matches(name, known, n=1)
    fix = f"or correct the name{f' to {literal(near[0])}' if near else ''}"
    if Path(name).exists():
        fix = f"correct the name, or, for the file, write `./{visible(name, 80)}`"
    there = listed((literal(each, 60) for each in known), none="none yet")
    raise NotebookError(
        f"`--give` names {literal(name)}, which is not defined (known: {there}): define it in a "
        f"cell above, {fix}."
    )


def _files(word: str) -> list[Path]:
    """The files that a word finds from the working directory, by name."""
    path = Path(word)
    try:
        if path.exists():  # also a file whose name has `[` or `*` in it
            return [path]
        # `Path.glob` takes no pattern that begins at the root.
        found = (Path(each) for each in glob.iglob(word, recursive=True))  # noqa: PTH207
        files = list(islice((each for each in found if each.is_file()), MOST_FILES + 1))
    except (OSError, ValueError) as error:
        raise NotebookError(
            f"`--give` cannot read {literal(word)} ({literal(str(error), 100)}): give the path of "
            "a file."
        ) from None
    if len(files) > MOST_FILES:
        raise NotebookError(
            f"`--give {literal(word)}` finds more than {MOST_FILES} files: give a narrower "
            "pattern, or the folder itself."
        )
    if not files:
        raise NotebookError(
            f"`--give` finds no file for {literal(word)} in the working directory: correct the "
            "path, or give a name of the notebook."
        )
    return sorted(files)


def _name_for(path: Path, taken: set[str]) -> str:
    """A name for a file, made of its own: `report-2024.pdf` becomes `report_2024_pdf`."""
    own = normalize("NFKC", path.name or path.resolve().name)
    name = re.sub(r"\W+", "_", own).strip("_")
    if not name[:1].isalpha() or not name.isidentifier():
        name = f"file_{name}".rstrip("_")
    if not name.isidentifier():  # a letter that no name may have
        name = "file_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in name[5:])
    if _no_name(name):
        name = f"{name}_file"
    unique, number = name, 2
    while unique in taken:
        unique, number = f"{name}_{number}", number + 1
    taken.add(unique)
    return unique

"""The messages of errors: the sentences of one, and all that the source code writes."""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path

from agentnb import errors as errors_of_a_person
from agentnb.core import errors
from agentnb.core.collector import without_collector

VALUE = "X"
"""Stands for code, for quotations, and for what only a run knows."""
# These may have full stops of their own.
_CODE = re.compile(r"`[^`\n]*`")
_QUOTED = re.compile(r"(?<!\w)'[^'\n]*'(?!\w)|\"[^\"\n]*\"")
_SHORT = re.compile(r"\b(?:e\.g|i\.e|etc|vs)\.")
# The dot of a number, a file or a host has no space after it, and `...` ends nothing.
_END = re.compile(r"(?<!\.)[.!?](?!\.)[)\"'”]*(?=\s|$)")
_MOST_VARIANTS = 16
_MOST_STEPS = 4
"""Most names and calls on the way from an error to its text."""


def sentences(message: str) -> list[str]:
    """The sentences of a message. Of a message with lines, those of the line that has most."""
    return max((_sentences(line) for line in message.split("\n")), key=len)


def _sentences(line: str) -> list[str]:
    for foreign in (_CODE, _QUOTED, _SHORT):
        line = foreign.sub(VALUE, line)
    return [part.strip() for part in _END.split(line) if re.search(r"\w", part)]


@dataclass(frozen=True)
class Message:
    """A text that the source code gives to an error."""

    place: str
    """File and line."""
    error: str
    """The error's class, or the function that makes it."""
    is_fix: bool
    """Whether it is only the part that says what to do."""
    text: str
    """With `X` for values. If it has conditions, one of the texts that it may be."""


@dataclass
class _Scope:
    """What names mean in a function, or in a module."""

    class_name: str = ""
    above: _Scope | None = None
    texts: dict[str, list[ast.expr]] = field(default_factory=dict)
    """What is assigned to a name."""
    returned: list[ast.expr] = field(default_factory=list)
    calls: list[ast.Call] = field(default_factory=list)
    """That make an error."""
    functions: dict[str, _Scope] = field(default_factory=dict)
    """For a module: all functions and methods, by name and place."""


_Elsewhere = dict[str, _Scope]
"""The functions that other modules may call, by a name that only one has."""


def messages_in(paths: Iterable[Path]) -> Iterator[Message]:
    """The texts of the errors that files raise or return, or give to their base class.

    A text in a variable, or returned by a function of these files, counts as well.
    """
    modules: dict[Path, _Scope] = {}
    with without_collector():  # it takes as long as the parsing
        for path in paths:
            modules[path] = module = _Scope()
            _read(ast.parse(path.read_text(encoding="utf-8")).body, module, module)
    names = Counter(name for module in modules.values() for name in module.functions)
    elsewhere = {
        name: function
        for module in modules.values()
        for name, function in module.functions.items()
        if names[name] == 1
    }
    for path, module in modules.items():
        known = elsewhere | module.functions
        for scope in (module, *module.functions.values()):
            for call in scope.calls:
                name = _name_of(call.func)
                error = scope.class_name if name == "__init__" else name
                for argument, is_fix in _arguments(call):
                    for text in _variants(argument, scope, known, _MOST_STEPS):
                        yield Message(f"{path.name}:{call.lineno}", error, is_fix, text)


def _arguments(call: ast.Call) -> Iterator[tuple[ast.expr, bool]]:
    """The arguments of a call, and of each mistake that it lists."""
    for argument in call.args:
        if isinstance(argument, ast.List):
            for mistake in argument.elts:
                if isinstance(mistake, ast.Call):
                    yield from _arguments(mistake)
        else:
            yield argument, False
    for keyword in call.keywords:
        yield keyword.value, keyword.arg == "fix"


def _read(body: Sequence[ast.stmt], scope: _Scope, module: _Scope, class_name: str = "") -> None:
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                inner = _Scope(class_name, scope)
                name = statement.name
                key = f"{name}:{statement.lineno}" if name in module.functions else name
                module.functions[key] = inner
                _read(statement.body, inner, module, class_name)
                continue
            case ast.ClassDef():
                _read(statement.body, scope, module, statement.name)
                continue
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                scope.texts.setdefault(name, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                scope.texts.setdefault(name, []).append(value)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                for target, value in zip(names, values, strict=False):
                    if isinstance(target, ast.Name):
                        scope.texts.setdefault(target.id, []).append(value)
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value):
                before = scope.texts.get(name, [])
                scope.texts[name] = before + [ast.BinOp(b, ast.Add(), value) for b in before]
            case ast.Raise(exc=ast.Call() as call):
                scope.calls.append(call)
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="__init__")) as call):
                scope.calls.append(call)
            case ast.Return(value=ast.expr() as value):
                scope.returned.append(value)
                if isinstance(value, ast.Call) and _is_error(_name_of(value.func)):
                    scope.calls.append(value)
        for part in ("body", "orelse", "finalbody"):
            _read(getattr(statement, part, ()), scope, module, class_name)
        for branch in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            _read(branch.body, scope, module, class_name)


def _name_of(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_error(name: str) -> bool:
    if name == errors_of_a_person.ConfigMistake.__name__:
        return True
    found = (getattr(module, name, None) for module in (builtins, errors, errors_of_a_person))
    return any(isinstance(each, type) and issubclass(each, BaseException) for each in found)


def _variants(value: ast.expr, scope: _Scope, known: _Elsewhere, steps: int) -> list[str]:
    """The texts that an expression may be; `X` for what is not known."""
    if not steps:
        return [VALUE]
    found: list[ast.expr] = []
    match value:
        case ast.Constant(value=text):
            return [text if isinstance(text, str) else ""]
        case ast.JoinedStr(values=parts):
            return _joined([_variants(part, scope, known, steps) for part in parts])
        case ast.FormattedValue(value=inner, conversion=-1, format_spec=None):
            return _variants(inner, scope, known, steps)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _joined([_variants(each, scope, known, steps) for each in (left, right)])
        case ast.IfExp(body=one, orelse=other):
            found = [one, other]
        case ast.BoolOp(op=ast.Or(), values=values):
            found = values
        case ast.Name(id=name):
            place: _Scope | None = scope
            while place is not None and not found:
                found, place = place.texts.get(name, []), place.above
            steps -= 1
        case ast.Call(func=function) if called := known.get(_name_of(function)):
            found, scope = called.returned, called
            steps -= 1
    texts = [text for each in found for text in _variants(each, scope, known, steps)]
    return list(dict.fromkeys(texts))[:_MOST_VARIANTS] or [VALUE]


def _joined(parts: Sequence[Sequence[str]]) -> list[str]:
    return ["".join(each) for each in islice(product(*parts), _MOST_VARIANTS)]

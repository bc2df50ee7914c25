"""LoRA adapters that a pod declares: by annotation, and by the arguments of vLLM and SGLang.

Invariant: the annotation is judged, arguments are only read; whatever stands in arguments,
nothing raises, and what cannot be read becomes a warning.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from webhook.stamps import adapters_digest

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from webhook.review import Container

MAX_NAME_LENGTH: Final = 253

_VLLM: Final = "name"
_SGLANG: Final = "lora_name"
_SERVED: Final = "served"
_MODEL: Final = "model"
# What the values of a flag are; for adapters, the key of the name in their JSON form. Both
# programs take `_` for `-`.
_ROLES: Final = {
    spelling: role
    for flag, role in (
        ("--lora-modules", _VLLM),
        ("--lora-paths", _SGLANG),
        ("--served-model-name", _SERVED),
        ("--model", _MODEL),
        ("--model-path", _MODEL),
    )
    for spelling in (flag, f"--{flag[2:].replace('-', '_')}")
}
_FLAG_IN_TEXT = re.compile(r"--lora[-_](?:modules|paths)")
_HINT: Final = "list it in the annotation podstamp.dev/adapters"


class Arguments(NamedTuple):
    """What the arguments of a pod's containers say."""

    adapters: tuple[str, ...]
    served: frozenset[str]
    """Names under which the base model is served, as far as arguments say so."""
    warnings: tuple[str, ...]


SILENT: Final = Arguments((), frozenset(), ())
_REMEMBERED_LENGTH: Final = 4096


class Declared(NamedTuple):
    """What a pod declares by annotation and arguments together."""

    names: tuple[str, ...]
    """Without repeats; unusable names of the annotation are left out."""
    digest: str | None
    """Value of the digest annotation; None without adapters."""
    problem: str | None
    """What is wrong with the annotation, for a person."""
    warnings: tuple[str, ...]
    """What could not be read of the arguments."""


def annotated_names(text: str | None) -> list[str]:
    """The names of the annotation as written, trimmed; a blank annotation declares none."""
    if text is None or not text.strip():
        return []
    return [name.strip() for name in text.split(",")]


def name_problem(names: Sequence[str], served: Collection[str]) -> str | None:
    """What is wrong with annotated `names`, for a person; None if nothing is.

    `served` are the names that the engine gives its base model: an adapter of that name would
    be unreachable.
    """
    seen = set()
    for name in names:
        if not name:
            return "an adapter name is empty"
        if len(name) > MAX_NAME_LENGTH:
            return f"adapter {shorten(name)} has {len(name)} characters, at most 253 are allowed"
        if name in seen:
            return f"adapter {shorten(name)} is named twice"
        if name in served:
            return f"adapter {shorten(name)} is the served model name"
        seen.add(name)
    return None


def declared_adapters(annotation: str | None, arguments: Arguments) -> Declared:
    """The union of both sources, and what is wrong with the annotation."""
    size = 0 if annotation is None else len(annotation)
    if arguments is not SILENT:
        size += sum(map(_size, arguments))
    if size <= _REMEMBERED_LENGTH:
        return _remembered_declaration(annotation, arguments)
    return _declare(annotation, arguments)


def _size(texts: Collection[str]) -> int:
    """About what they cost to keep: empty ones are not free."""
    return len(texts) + sum(map(len, texts))


def _declare(annotation: str | None, arguments: Arguments) -> Declared:
    annotated = annotated_names(annotation)
    usable = (name for name in annotated if 0 < len(name) <= MAX_NAME_LENGTH)
    names = tuple(dict.fromkeys((*usable, *arguments.adapters)))
    return Declared(
        names,
        adapters_digest(names) if names else None,
        name_problem(annotated, arguments.served),
        arguments.warnings,
    )


_remembered_declaration = lru_cache(maxsize=256)(_declare)


def read_arguments(containers: Sequence[Container]) -> Arguments:
    """What all containers say together."""
    said = [arguments for arguments in map(_arguments_of, containers) if arguments is not SILENT]
    if len(said) < 2:
        return said[0] if said else SILENT
    return Arguments(
        tuple(dict.fromkeys(name for each in said for name in each.adapters)),
        frozenset(name for each in said for name in each.served),
        tuple(dict.fromkeys(text for each in said for text in each.warnings)),
    )


def _arguments_of(container: Container) -> Arguments:
    command, arguments = container.command, container.args
    if not command and not arguments:
        return SILENT
    # Pods of one set have the same arguments; what is huge is read anew, to bound the memory.
    words = (command or ()) + (arguments or ())
    return _remembered(words) if _size(words) <= _REMEMBERED_LENGTH else _read(words)


def shorten(text: str, limit: int = 60) -> str:
    """`text` quoted for a message, cut to about `limit` characters."""
    return repr(text if len(text) <= limit else f"{text[: limit - 1]}…")


def _read(arguments: tuple[str, ...]) -> Arguments:
    """Command and arguments are one list to the program. Values follow their flag, up to the next
    one; the first may be joined to it by `=`."""
    names: dict[str, None] = {}
    warnings: dict[str, None] = {}
    explicit: list[str] = []
    models: list[str] = []
    role: str | None = None
    previous = ""
    for argument in arguments:
        value = argument
        if argument[:1] == "-":
            flag, equals, value = argument.partition("=")
            role = _ROLES.get(flag)
            if role is not None and not equals:
                continue
        if role is None:
            if "--lora" in argument and _FLAG_IN_TEXT.search(argument):
                text = f"adapters inside {shorten(argument, 40)} cannot be read: {_HINT}"
                warnings[text] = None
            elif argument == "serve" and previous.rpartition("/")[2] == "vllm":
                # The model of `vllm serve MODEL`.
                role = _MODEL
            previous = argument
        elif role is _MODEL:
            models.append(value)
        elif role is _SERVED:
            explicit.append(value)
        else:
            _read_adapter(role, value, names, warnings)
    served = frozenset(name for name in explicit or models if "$(" not in name)
    return Arguments(tuple(names), served, tuple(warnings))


_remembered = lru_cache(maxsize=256)(_read)


def _read_adapter(key: str, value: str, names: dict[str, None], warnings: dict[str, None]) -> None:
    name, problem = _name_in(key, value)
    if problem is None and name in names:
        problem = f"{shorten(name)} is named twice in the arguments"
    if problem is not None:
        warnings[f"adapter {problem}"] = None
    if name and len(name) <= MAX_NAME_LENGTH:
        names[name] = None


def _name_in(key: str, value: str) -> tuple[str, str | None]:
    """The adapter's name in one value ("" if unreadable), and what is odd about it."""
    name: str | None
    if value[:1] == "{":
        name = _json_name(value, key)
    else:
        name, equals, _ = value.partition("=")
        if not equals and key == _VLLM:
            name = None
    if name is None or "$(" in name:
        return "", f"argument {shorten(value, 40)} cannot be read: {_HINT}"
    if not name:
        return "", f"argument {shorten(value, 40)} has an empty name"
    if len(name) > MAX_NAME_LENGTH:
        return name, f"{shorten(name, 40)} has {len(name)} characters"
    return name, None


def _json_name(text: str, key: str) -> str | None:
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    name = value.get(key) if isinstance(value, dict) else None
    return name if isinstance(name, str) else None

"""LoRA adapters that a pod declares: by annotation, and by the arguments of vLLM and SGLang.

Invariant: the annotation is judged, arguments are only read; whatever stands in arguments,
nothing raises, and what cannot be read becomes a warning.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from webhook.review import Container

MAX_NAME_LENGTH: Final = 253

_VLLM_KEY: Final = "name"
_SGLANG_KEY: Final = "lora_name"
# The flag to the key of the name in its JSON form; both programs take `_` for `-`.
_NAME_KEYS: Final = {
    "--lora-modules": _VLLM_KEY,
    "--lora_modules": _VLLM_KEY,
    "--lora-paths": _SGLANG_KEY,
    "--lora_paths": _SGLANG_KEY,
}
_FLAG_IN_TEXT = re.compile(r"--lora[-_](?:modules|paths)")
_SERVED: Final = "--served-model-name"
_MODELS: Final = frozenset({"--model", "--model-path"})
_HINT: Final = "list it in the annotation podstamp.dev/adapters"


class Declared(NamedTuple):
    """Names in the order of their declaration, without repeats, and what could not be read."""

    names: tuple[str, ...]
    warnings: tuple[str, ...]


NOTHING: Final = Declared((), ())


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


def declared_adapters(annotation: str | None, containers: Sequence[Container]) -> Declared:
    """The union of both sources; unusable names of the annotation are left out."""
    names: dict[str, None] = {}
    warnings: dict[str, None] = {}
    if annotation:
        for name in annotated_names(annotation):
            if 0 < len(name) <= MAX_NAME_LENGTH:
                names[name] = None
    for container in containers:
        command, arguments = container.command, container.args
        if (command and _mentions_lora(command)) or (arguments and _mentions_lora(arguments)):
            _read_arguments([*(command or ()), *(arguments or ())], names, warnings)
    if not names and not warnings:
        return NOTHING
    return Declared(tuple(names), tuple(warnings))


def served_names(containers: Sequence[Container]) -> set[str]:
    """Names under which the containers serve their base model, as far as arguments say so."""
    served: set[str] = set()
    for container in containers:
        command, arguments = container.command, container.args
        served |= _served_by([*(command or ()), *(arguments or ())])
    return served


def shorten(text: str, limit: int = 60) -> str:
    """`text` quoted for a message, cut to about `limit` characters."""
    return repr(text if len(text) <= limit else f"{text[: limit - 1]}…")


def _mentions_lora(arguments: Sequence[str]) -> bool:
    """Whether any argument needs a closer look; cheap, as it runs for every pod."""
    for argument in arguments:  # noqa: SIM110  a generator costs twice the time
        if "--lora" in argument:
            return True
    return False


def _served_by(arguments: Sequence[str]) -> set[str]:
    """Explicit names win over the model, which is an argument or follows `vllm serve`."""
    explicit: set[str] = set()
    models: set[str] = set()
    values: set[str] | None = None
    previous = ""
    for argument in arguments:
        if argument[:1] == "-":
            flag, equals, value = argument.partition("=")
            flag = flag.replace("_", "-")
            values = explicit if flag == _SERVED else models if flag in _MODELS else None
            if values is not None and equals:
                values.add(value)
        elif values is not None:
            values.add(argument)
        elif argument == "serve" and previous.rpartition("/")[2] == "vllm":
            values = models
        previous = argument
    return {name for name in explicit or models if "$(" not in name}


def _read_arguments(
    arguments: Sequence[str], names: dict[str, None], warnings: dict[str, None]
) -> None:
    """Values follow their flag, up to the next one; the first may be joined to it by `=`."""
    seen: set[str] = set()
    key: str | None = None
    for argument in arguments:
        value = argument
        if argument[:1] == "-":
            flag, equals, value = argument.partition("=")
            key = _NAME_KEYS.get(flag)
            if key is not None and not equals:
                continue
        if key is None:
            if _FLAG_IN_TEXT.search(argument):
                text = f"adapters inside {shorten(argument, 40)} cannot be read: {_HINT}"
                warnings[text] = None
            continue
        name, problem = _name_in(key, value)
        if problem is None and name in seen:
            problem = f"{shorten(name)} is named twice in the arguments"
        if problem is not None:
            warnings[f"adapter {problem}"] = None
        if name and len(name) <= MAX_NAME_LENGTH:
            seen.add(name)
            names[name] = None


def _name_in(key: str, value: str) -> tuple[str, str | None]:
    """The adapter's name in one value ("" if unreadable), and what is odd about it."""
    name: str | None
    if value[:1] == "{":
        name = _json_name(value, key)
    else:
        name, equals, _ = value.partition("=")
        if not equals and key == _VLLM_KEY:
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

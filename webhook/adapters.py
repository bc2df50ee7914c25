"""LoRA adapters that a pod declares: by annotation, and by the arguments of vLLM and SGLang.

Invariant: the annotation is judged, arguments are only read; whatever stands in arguments,
nothing raises, and what cannot be read becomes a warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from webhook.review import Container

MAX_NAME_LENGTH: Final = 253

VLLM_FLAG: Final = "--lora-modules"
SGLANG_FLAG: Final = "--lora-paths"
_NAME_KEYS: Final = {VLLM_FLAG: "name", SGLANG_FLAG: "lora_name"}
_SERVED_FLAGS: Final = ("--served-model-name",)
_MODEL_FLAGS: Final = ("--model", "--model-path")
_SHELL_HINT: Final = "list them in the annotation podstamp.dev/adapters"


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
    names = dict.fromkeys(n for n in annotated_names(annotation) if 0 < len(n) <= MAX_NAME_LENGTH)
    warnings: list[str] = []
    for container in containers:
        for part in (container.command, container.args):
            if part and mentions_adapters(part):
                _read_arguments(
                    [*(container.command or ()), *(container.args or ())], names, warnings
                )
                break
    if not names and not warnings:
        return NOTHING
    return Declared(tuple(names), tuple(dict.fromkeys(warnings)))


def mentions_adapters(arguments: Sequence[str]) -> bool:
    """Whether any argument needs a closer look; cheap, as it runs for every pod."""
    for argument in arguments:
        if "--lora" in argument and ("modules" in argument or "paths" in argument):
            return True
    return False


def served_names(containers: Sequence[Container]) -> set[str]:
    """Names under which the containers serve their base model, as far as arguments say so."""
    served: set[str] = set()
    for container in containers:
        arguments = [*(container.command or ()), *(container.args or ())]
        explicit = _values(arguments, _SERVED_FLAGS)
        served.update(explicit or _values(arguments, _MODEL_FLAGS) or _positional(arguments))
    return served


def shorten(text: str, limit: int = 60) -> str:
    """`text` quoted for a message, cut to about `limit` characters."""
    return repr(text if len(text) <= limit else f"{text[: limit - 1]}…")


def _flag_of(argument: str) -> tuple[str, str | None]:
    """The flag with its dashes made uniform (vLLM takes `_` for `-`), and a value joined by `=`."""
    if not argument.startswith("--"):
        return "", None
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-"), value if equals else None


def _values(arguments: Sequence[str], flags: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for flag, value in _flag_values(arguments):
        if flag in flags and "$(" not in value:
            found.append(value)
    return found


def _flag_values(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each value with the flag that it follows: those up to the next flag belong to it."""
    current = ""
    for argument in arguments:
        if argument.startswith("-"):
            current, joined = _flag_of(argument)
            if joined is not None:
                yield current, joined
        elif current:
            yield current, argument


def _positional(arguments: Sequence[str]) -> list[str]:
    """The model of `vllm serve MODEL`."""
    for at, argument in enumerate(arguments[:-2]):
        if argument.rpartition("/")[2] == "vllm" and arguments[at + 1] == "serve":
            model = arguments[at + 2]
            return [] if model.startswith("-") or "$(" in model else [model]
    return []


def _read_arguments(arguments: Sequence[str], names: dict[str, None], warnings: list[str]) -> None:
    from_arguments: set[str] = set()
    for flag, value in _flag_values(arguments):
        if flag not in _NAME_KEYS:
            continue
        name, problem = _name_in(flag, value)
        if problem is None and name in from_arguments:
            problem = f"names adapter {shorten(name)} twice"
        if problem is not None:
            warnings.append(f"{flag} {problem}")
        if name and len(name) <= MAX_NAME_LENGTH:
            from_arguments.add(name)
            names[name] = None
    for argument in arguments:
        if _flag_of(argument)[0] not in _NAME_KEYS and mentions_adapters((argument,)):
            warnings.append(
                f"adapters inside {shorten(argument, 40)} cannot be read: {_SHELL_HINT}"
            )


def _name_in(flag: str, value: str) -> tuple[str, str | None]:
    """The adapter's name in one value of `flag` ("" if unreadable), and what is odd about it."""
    if value.startswith("{"):
        name = _json_name(value, _NAME_KEYS[flag])
    elif "=" in value:
        name = value.partition("=")[0]
    else:
        name = value if flag == SGLANG_FLAG else None
    if name is None or "$(" in name:
        return "", f"value {shorten(value, 40)} cannot be read: {_SHELL_HINT}"
    if not name:
        return "", f"value {shorten(value, 40)} has an empty adapter name"
    if len(name) > MAX_NAME_LENGTH:
        return name, f"names adapter {shorten(name, 40)} of {len(name)} characters"
    return name, None


def _json_name(text: str, key: str) -> str | None:
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    name = value.get(key) if isinstance(value, dict) else None
    return name if isinstance(name, str) else None

"""Settings of a command: a YAML file, then the environment, then flags.

Invariant: what is returned is valid in every field; a mistake is one ConfigError that names the
place as the user wrote it, the value, and what is allowed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import inspect

from kube.errors import ConfigError
from kube.explain import explain
from kube.yamltext import load_yaml

T = TypeVar("T")

ENVIRONMENT_PREFIX = "PODSTAMP_"


def load_settings(
    kind: type[T], *, file: Path | None, environ: Mapping[str, str], flags: Mapping[str, Any]
) -> T:
    """Settings of struct type `kind`: defaults < `file` < `environ` < `flags`.

    YAML keys are camelCase. Field `terminal.hold_seconds` is `PODSTAMP_TERMINAL_HOLD_SECONDS` in
    the environment and `terminal.hold_seconds` in `flags`, where None means not given. Lists are
    comma-separated in the environment. ConfigError: place, value and what is allowed.
    """
    leaves = _leaves(inspect.type_info(kind))
    content: dict[str, Any] = {}
    if file is not None:
        content = _read_yaml(file)
    places: dict[tuple[str, ...], str] = {}
    for leaf in leaves:
        text = environ.get(leaf.variable)
        if text is not None:
            _set(content, leaf.keys, _parse(text, leaf))
            places[leaf.keys] = leaf.variable
    by_name = {leaf.name: leaf for leaf in leaves}
    for name, value in flags.items():
        if value is not None:
            named = by_name.get(name)
            if named is None:
                raise ConfigError(f"there is no setting {name}")
            _set(content, named.keys, value)
            places[named.keys] = "--" + name.replace(".", "-").replace("_", "-")
    return _convert(content, kind, file.name if file else "settings", places)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A field that is no struct."""

    name: str
    keys: tuple[str, ...]
    type: inspect.Type

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.replace(".", "_").upper()


def _leaves(struct: inspect.Type, name: str = "", keys: tuple[str, ...] = ()) -> list[_Leaf]:
    assert isinstance(struct, inspect.StructType)
    found: list[_Leaf] = []
    for field in struct.fields:
        full, path = f"{name}{field.name}", (*keys, field.encode_name)
        if isinstance(field.type, inspect.StructType):
            found += _leaves(field.type, full + ".", path)
        else:
            found.append(_Leaf(full, path, field.type))
    return found


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        content = load_yaml(file.read_text("utf-8"), _UniqueKeyLoader)
    except OSError as error:
        raise ConfigError(f"{file}: cannot read the settings: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 text") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{file}: not YAML{where}: {getattr(error, 'problem', error)}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: settings are a mapping of names to values")
    return _without_empty(content)


def _without_empty(content: dict[str, Any]) -> dict[str, Any]:
    """`terminal:` with nothing behind it means the defaults, not null."""
    return {
        key: _without_empty(value) if isinstance(value, dict) else value
        for key, value in content.items()
        if value is not None
    }


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML forbids a key that stands twice; PyYAML lets the last one win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} stands twice", key_node.start_mark
                )
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _set(content: dict[str, Any], keys: tuple[str, ...], value: Any) -> None:
    for key in keys[:-1]:
        inner = content.setdefault(key, {})
        if not isinstance(inner, dict):
            # The file is wrong here, and the conversion says so.
            return
        content = inner
    content[keys[-1]] = value


def _parse(text: str, leaf: _Leaf) -> Any:
    """`text` of the environment, in the shape that the field wants; a wrong one stays text."""
    types = leaf.type.types if isinstance(leaf.type, inspect.UnionType) else (leaf.type,)
    kinds = {type(kind) for kind in types}
    if kinds & {inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType}:
        # A list of anything but words is written as YAML: [{name: a}].
        if text.lstrip().startswith("["):
            return _parse_yaml(text)
        return [item.strip() for item in text.split(",") if item.strip()]
    if kinds & {inspect.StrType, inspect.EnumType, inspect.LiteralType} and text != "":
        return text
    if inspect.NoneType in kinds and text == "":
        return None
    return text if kinds & {inspect.StrType} else _parse_yaml(text)


def _parse_yaml(text: str) -> Any:
    try:
        return load_yaml(text)
    except yaml.YAMLError:
        return text


def _convert(
    content: dict[str, Any], kind: type[T], where: str, places: Mapping[tuple[str, ...], str]
) -> T:
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(explain(error, content, kind, where, places)) from error
    except TypeError as error:
        raise ConfigError(f"{where}: a name is no text, or a value of a kind not known") from error

"""Types of the built-in kinds, read from the official client's model sources.

Decoding copies an object, keeps the known fields, drops nulls and names what it dropped, as the
real server's typed decoding does. The models are read as text and one at a time: importing the
client costs more than a whole server start.
Invariant: a decoded object shares no container with its source.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

Decoder = Callable[[Any, str, list[str]], Any]

QUANTITIES = frozenset(
    {"allocatable", "allocatedResources", "capacity", "divisor", "hard", "limits", "overhead"}
    | {"requests", "sizeLimit", "used"}
)
"""Fields whose values are quantities: a bare number is one too."""


class WrongType(Exception):
    """A value that the field's type cannot hold; str() is what the real decoder would say."""


@dataclass(frozen=True, slots=True)
class Field:
    """`type` is the client's notation: str, int, List[V1Container], Dict[str, str], object …"""

    type: str
    required: bool
    description: str


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    description: str
    fields: dict[str, Field]


@cache
def _folder() -> Path:
    spec = importlib.util.find_spec("kubernetes")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package kubernetes is not installed")
    return Path(spec.submodule_search_locations[0]) / "client" / "models"


def _module_name(model: str) -> str:
    snake = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", model)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", snake).lower()


_FIELD = re.compile(r"^    (\w+): (Optional\[)?.*? = Field\((.*)\)$", re.MULTILINE)
_DESCRIPTION = re.compile(r'(?<![a-z_])description=("(?:[^"\\]|\\.)*")')


def _literal(source: str, name: str) -> dict[str, str]:
    match = re.search(
        rf"^    {name}: ClassVar\[.*?\] = (\{{.*?^    \}}|\{{\}})", source, re.M | re.S
    )
    return {} if match is None else dict(ast.literal_eval(match[1]))


@cache
def model(name: str) -> Model:
    """The model of a type such as V1Pod. FileNotFoundError when the client has none."""
    source = (_folder() / f"{_module_name(name)}.py").read_text(encoding="utf-8")
    types, names = _literal(source, "openapi_types"), _literal(source, "attribute_map")
    described: dict[str, tuple[bool, str]] = {}
    for match in _FIELD.finditer(source):
        text = _DESCRIPTION.search(match[3])
        described[match[1]] = (match[2] is None, str(ast.literal_eval(text[1])) if text else "")
    doc = re.search(rf'class {name}\(.*?"""\s*(.*?)\n\s*Attributes:', source, re.S)
    fields: dict[str, Field] = {}
    for attribute, type_text in types.items():
        required, description = described.get(attribute, (False, ""))
        fields[names.get(attribute, attribute)] = Field(type_text, required, description)
    return Model(name, " ".join(doc[1].split()) if doc else "", fields)


def _wrong(value: Any, path: str, wanted: str) -> WrongType:
    found = {
        bool: "bool",
        int: "number",
        float: "number",
        str: "string",
        list: "array",
        dict: "object",
    }[type(value)]
    field = path.lstrip(".")
    return WrongType(
        f"json: cannot unmarshal {found} into Go struct field {field} of type {wanted}"
    )


def _string(value: Any, path: str, unknown: list[str]) -> Any:
    if type(value) is str:
        return value
    raise _wrong(value, path, "string")


def _integer(value: Any, path: str, unknown: list[str]) -> Any:
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    raise _wrong(value, path, "int")


def _number(value: Any, path: str, unknown: list[str]) -> Any:
    if type(value) in (int, float):
        return value
    raise _wrong(value, path, "float64")


def _boolean(value: Any, path: str, unknown: list[str]) -> Any:
    if type(value) is bool:
        return value
    raise _wrong(value, path, "bool")


def _quantity(value: Any, path: str, unknown: list[str]) -> Any:
    if type(value) in (int, float):
        return str(value)
    return _string(value, path, unknown)


def copy(value: Any) -> Any:
    """A deep copy of plain JSON."""
    if type(value) is dict:
        return {key: copy(item) for key, item in value.items()}
    if type(value) is list:
        return [copy(item) for item in value]
    return value


def _any(value: Any, path: str, unknown: list[str]) -> Any:
    return copy(value)


def _list_of(item_decoder: Decoder) -> Decoder:
    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        if type(value) is not list:
            raise _wrong(value, path, "[]")
        return [
            item_decoder(item, f"{path}[{index}]", unknown)
            for index, item in enumerate(value)
            if item is not None
        ]

    return decode


def _map_of(item_decoder: Decoder) -> Decoder:
    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise _wrong(value, path, "map")
        return {
            key: "" if item is None else item_decoder(item, path, unknown)
            for key, item in value.items()
        }

    return decode


def _struct_of(name: str) -> Decoder:
    fields: dict[str, Decoder] = {}

    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        if not fields:
            for key, field in model(name).fields.items():
                quantity = key in QUANTITIES and field.type in ("str", "Dict[str, str]")
                fields[key] = _quantities[field.type] if quantity else decoder(field.type)
        if type(value) is not dict:
            raise _wrong(value, path, name)
        out: dict[str, Any] = {}
        for key, item in value.items():
            if item is None:
                continue
            decode_field = fields.get(key)
            if decode_field is None:
                unknown.append(f"{path}.{key}".lstrip("."))
            elif type(item) is str and decode_field is _string:
                out[key] = item
            else:
                out[key] = decode_field(item, f"{path}.{key}", unknown)
        return out

    return decode


_quantities: dict[str, Decoder] = {"str": _quantity, "Dict[str, str]": _map_of(_quantity)}
_SCALARS: dict[str, Decoder] = {
    "str": _string,
    "int": _integer,
    "float": _number,
    "bool": _boolean,
    "datetime": _string,
    "bytearray": _string,
    "bytes": _string,
    "object": _any,
}


@cache
def decoder(type_text: str) -> Decoder:
    """A function (value, path, unknown) -> copy; raises WrongType, appends dropped fields."""
    if scalar := _SCALARS.get(type_text):
        return scalar
    if match := re.fullmatch(r"List\[(.*)\]", type_text):
        return _list_of(decoder(match[1]))
    if match := re.fullmatch(r"Dict\[str, (.*)\]", type_text):
        return _map_of(decoder(match[1]))
    return _struct_of(type_text)

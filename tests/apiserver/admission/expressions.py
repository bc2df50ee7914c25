"""CEL as admission uses it: programs compiled once, run on the variables of one request.

Only functions that Kubernetes has are known, so that what compiles here compiles there; what
this library lacks (optional syntax, quantities, params, authorizer) is refused when the
expression is compiled. `variables.x` is evaluated when it is first read, as in Kubernetes.
"""

import logging
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

import cel
from cel.stdlib import EXTENSIONS, STDLIB_FUNCTIONS

NAMES = frozenset({"object", "oldObject", "request", "namespaceObject"})

_STRING = r"""[rR]?(?:\"\"\".*?\"\"\"|'''.*?'''|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
_VARIABLE = re.compile(rf"{_STRING}|\bvariables\s*\.\s*(?P<name>[A-Za-z_]\w*)", re.DOTALL)
_MACRO = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*([A-Za-z_]\w*)\s*,")
_READ = "__variable"

# A failed expression is an answer to the client; the library would also print it.
logging.getLogger("cel").setLevel(logging.ERROR)


class ExpressionError(Exception):
    """The expression does not compile, or failed on this request; worded as in Kubernetes."""


class Expression:
    """One compiled expression; `source` is as the user wrote it."""

    __slots__ = ("_program", "source", "variables")

    def __init__(self, source: str, declared: frozenset[str] = frozenset()) -> None:
        """Raise ExpressionError; `declared` are the names that `variables.` may be followed by."""
        self.source = source
        rewritten, self.variables = _rewrite(source)
        try:
            self._program = cel.compile(rewritten)
        except ValueError as error:
            text = str(error).partition(": ")[2] or str(error)
            raise ExpressionError(f"compilation failed: {text}") from error
        self._check(rewritten, declared)

    def _check(self, rewritten: str, declared: frozenset[str]) -> None:
        known = NAMES | _TYPES | _NAMESPACES | set(_MACRO.findall(rewritten))
        unknown = [name for name in self._program.variables() if name not in known]
        unknown += [f"variables.{name}" for name in self.variables - declared]
        unknown += [
            name
            for name in self._program.functions()
            if name not in _CALLABLE and not name.startswith(("_", "@", "-", "!"))
        ]
        if unknown:
            text = f"undeclared reference to '{unknown[0]}'"
            raise ExpressionError(f"compilation failed: ERROR: <input>: {text}")

    def evaluate(self, scope: "Scope") -> Any:
        """The value, as Python data; ExpressionError if the expression failed."""
        try:
            return scope.evaluate(self._program)
        except ValueError as error:
            raise ExpressionError(
                f"expression '{self.source}' resulted in error: {error}"
            ) from error


@lru_cache(maxsize=4096)
def compile_expression(source: str, declared: frozenset[str] = frozenset()) -> Expression:
    """`Expression`, kept for the next request; the source itself is the key, so it never ages."""
    return Expression(source, declared)


class Scope:
    """The variables of one request; converted once for all the expressions that it meets."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.context = cel.Context({**values, "namespaceObject": None})
        for name, function in _FUNCTIONS.items():
            self.context.add_function(name, function)
        self._failure: str | None = None

    def enter(self, namespace: Any, variables: Mapping[str, Expression]) -> None:
        """Set `namespaceObject` and what `variables.x` reads, until the next call."""
        self.context.add_variable("namespaceObject", namespace)
        values: dict[str, Any] = {}
        failures: dict[str, str] = {}

        def read(name: str) -> Any:
            if name not in values and name not in failures:
                try:
                    values[name] = variables[name].evaluate(self)
                except ExpressionError as error:
                    failures[name] = f'composited variable "{name}" fails to evaluate: {error}'
            if name in failures:
                self._failure = failures[name]
                raise ValueError(self._failure)
            return values[name]

        self.context.add_function(_READ, read)

    def evaluate(self, program: cel.Program) -> Any:
        """The program's value; ValueError with the reason in the words of Kubernetes' own CEL."""
        self._failure = None
        try:
            return program.execute(self.context)
        except KeyError as error:
            raise ValueError(f"no such key: {error.args[0]}") from error
        except TypeError as error:
            raise ValueError("no such overload") from error
        except ZeroDivisionError as error:
            raise ValueError("division by zero") from error
        except (ValueError, RuntimeError) as error:
            raise ValueError(self._failure or str(error).splitlines()[0]) from error


def _rewrite(source: str) -> tuple[str, frozenset[str]]:
    """The source with a call in each `variables.x`, and the names read; literals stay."""
    names = set()

    def replace(found: re.Match[str]) -> str:
        name = found["name"]
        if name is None:
            return found[0]
        names.add(name)
        return f'{_READ}("{name}")'

    return _VARIABLE.sub(replace, source), frozenset(names)


def _string(value: Any) -> str:
    """The conversion that the library lacks: string(bool)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    raise TypeError("no such overload")


def _find(text: str, pattern: str) -> str:
    found = re.search(pattern, text)
    return found[0] if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [each[0] for each in re.finditer(pattern, text)]
    return found if limit < 0 else found[:limit]


def _is_sorted(items: list[Any]) -> bool:
    return all(a <= b for a, b in pairwise(items))


_STRINGS = "charAt indexOf lastIndexOf substring replace split join lowerAscii upperAscii trim"
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: STDLIB_FUNCTIONS[name] for name in _STRINGS.split()},
    **EXTENSIONS["sets"],
    "bool": STDLIB_FUNCTIONS["bool"],
    "sum": STDLIB_FUNCTIONS["sum"],
    "min": STDLIB_FUNCTIONS["min"],
    "max": STDLIB_FUNCTIONS["max"],
    "string": _string,
    "find": _find,
    "findAll": _find_all,
    "isSorted": _is_sorted,
}
_NATIVE = (
    "size contains startsWith endsWith matches int uint double string bytes timestamp duration "
    "dyn type getFullYear getMonth getDate getDayOfMonth getDayOfWeek getDayOfYear getHours "
    "getMinutes getSeconds getMilliseconds"
)
_TYPES = {"int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type"}
_NAMESPACES = {"sets"}  # the library takes the `sets` of sets.contains() for a variable
_CALLABLE = frozenset([_READ, *_NATIVE.split(), *(name.rpartition(".")[2] for name in _FUNCTIONS)])

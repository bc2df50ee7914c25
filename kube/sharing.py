"""One object for equal values: the pods of a set differ in little.

Invariant: only immutable values, so nobody can tell that one is shared; bounded.
"""

from collections.abc import Hashable
from typing import TypeVar

V = TypeVar("V", bound=Hashable)

# Far more than sets, owners and words in use at once; beyond it, begin anew.
_LIMIT = 20_000

_known: dict[Hashable, Hashable] = {}


def shared(value: V) -> V:
    """`value`, or the equal one that was seen first; the argument then becomes garbage."""
    known = _known.get(value)
    if known is None:
        if len(_known) >= _LIMIT:
            _known.clear()
        _known[value] = value
        return value
    return known  # type: ignore[return-value]  # equal values of one type

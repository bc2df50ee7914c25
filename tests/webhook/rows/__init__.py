"""The table of admission: a row for each rule and each public bug report about admission.

The same rows run on the pure functions and over HTTPS through the embedded API server.
"""

from tests.webhook.rows import adapters, birth, bypass, end, fences, sets, stamps
from tests.webhook.rows.row import (
    FENCED_GROUP,
    FENCED_USER,
    HOLDER,
    IN_SET,
    PODSET_POD,
    Matches,
    Neighbour,
    Row,
)

__all__ = [
    "FENCED_GROUP",
    "FENCED_USER",
    "HOLDER",
    "IN_SET",
    "PODSET_POD",
    "ROWS",
    "Matches",
    "Neighbour",
    "Row",
]

ROWS: tuple[Row, ...] = tuple(
    row for part in (birth, sets, adapters, stamps, fences, bypass, end) for row in part.ROWS
)

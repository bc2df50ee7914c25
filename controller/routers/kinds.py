"""What every kind of router shares: a difference, and a target to make equal.

Invariant: a target is driven in one order only: observe, difference, apply, observe again;
nothing counts as done before it has been read back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from controller.routers.desired import Desired
from kube.events import ObjectReference


@dataclass(frozen=True, slots=True)
class Difference:
    """How an observation differs from the desired set, in the target's own entries.

    `pending` was asked for and is not seen yet, or may still appear. `claim` needs only to be
    recorded as ours; it does not make a router differ.
    """

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    change: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    claim: tuple[str, ...] = ()

    @property
    def settled(self) -> bool:
        return not (self.add or self.remove or self.change or self.pending)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to apply."""
        return not (self.add or self.remove or self.change or self.claim)


class Target(Protocol):
    """One thing that is kept equal to the desired set: a router replica, a file, some slices."""

    @property
    def label(self) -> str:
        """How status, metrics and logs call it."""

    @property
    def regarding(self) -> ObjectReference | None:
        """The object on which events about it are recorded, if it has one of its own."""

    async def observe(self) -> None:
        """Read its state. KubeError (RouterError, ApiError …): it could not be read."""

    def observed(self) -> tuple[str, ...]:
        """Its entries at the last observation, for a person."""

    def difference(self, desired: Desired) -> Difference:
        """Pure, over the last observation."""

    async def apply(self, desired: Desired, difference: Difference) -> None:
        """Ask for what differs. KubeError: not all of it could be asked for."""


class Kind(Protocol):
    """What one entry of `routers:` becomes."""

    async def load(self) -> None:
        """Read what is stored about this router. KubeError: try again later."""

    def targets(self) -> Mapping[str, Target]:
        """The targets that exist now, by a key that lasts as long as the target does."""

    async def settle(self, desired: Desired) -> None:
        """Called after targets were compared: forget what nobody needs to remember."""

    def applied_urls(self) -> frozenset[str]:
        """URLs that the router has by the record, for the guard of the first pass."""

    async def aclose(self) -> None:
        """Close connections."""

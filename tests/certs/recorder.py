"""Keeps what would become events."""

from kube.events import ObjectReference


class Recorder:
    """`told`: kind of the object, type and reason of each, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def record(
        self, regarding: ObjectReference, *, reason: str, note: str, type: str = "Normal"
    ) -> None:
        assert note
        self.told.append((regarding.kind, type, reason))

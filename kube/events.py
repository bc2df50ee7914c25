"""Records of what was done, as Kubernetes Events (events.k8s.io/v1), for `kubectl get events`.

Invariant: best effort; `record` never blocks and never raises, and one worker does all the I/O.
"""

import random as random_module

import msgspec

from kube.client import ApiClient
from kube.clock import Clock

REPORTING_CONTROLLER = "podstamp.dev/controller"


class ObjectReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What an event is about; `uid` ties it to one incarnation."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class EventRecorder:
    """Bounded queue and one worker; repeats of one (object, reason, note) become a series."""

    def __init__(
        self,
        client: ApiClient,
        *,
        instance: str,
        clock: Clock,
        random: random_module.Random,
        controller: str = REPORTING_CONTROLLER,
        timeout_s: float = 2.0,
        capacity: int = 2000,
    ) -> None:
        """`instance` names this process, as a rule the pod's name."""

    def record(
        self,
        regarding: ObjectReference,
        *,
        reason: str,
        note: str,
        type: str = "Normal",
        action: str = "",
        related: ObjectReference | None = None,
    ) -> None:
        """Queue one event; a full queue drops it and counts it in `dropped`."""
        raise NotImplementedError

    async def run(self) -> None:
        """Send what is queued, until cancelled."""
        raise NotImplementedError

    async def flush(self, timeout_s: float) -> None:
        """Wait until the queue is empty, at most `timeout_s`; `run` must be running."""
        raise NotImplementedError

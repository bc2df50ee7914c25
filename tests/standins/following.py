"""List and watch for stand-ins: every object as a plain dict, kept in step with the server.

Any failure leads to a full list after a short wait; what vanished meanwhile is told as deleted.
Independent of podstamp's own reflector, so that neither hides the other's faults.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from kube.client import ApiClient
from kube.clock import Clock
from kube.errors import KubeError

Json = dict[str, Any]
Notify = Callable[[str, Json], None]

_WATCH_S = 60.0
_READ_S = 65.0
_RETRY_S = 0.2
_decode = msgspec.json.Decoder(Json).decode


class Following:
    """`objects` by (namespace, name). `notify(type, object)` hears ADDED, MODIFIED and DELETED.

    A relist tells each object that is there as MODIFIED, as informers do with a resync.
    """

    def __init__(self, client: ApiClient, path: str, clock: Clock, notify: Notify) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self._client = client
        self._path = path
        self._clock = clock
        self._notify = notify

    async def run(self, listed: Callable[[], None]) -> None:
        """Until cancelled; `listed` is called after each full list."""
        while True:
            try:
                version = await self._list()
                listed()
                while True:
                    version = await self._watch(version)
            except KubeError:
                await self._clock.sleep(_RETRY_S)

    async def _list(self) -> str:
        found: dict[tuple[str, str], Json] = {}
        version = ""
        async for page in self._client.list_pages(self._path, type=Json):
            version = page.resource_version
            found |= {key_of(each): each for each in page.items}
        for key, old in list(self.objects.items()):
            if key not in found or uid_of(found[key]) != uid_of(old):
                self._apply("DELETED", old)
        for key, each in found.items():
            self._apply("MODIFIED" if key in self.objects else "ADDED", each)
        return version

    async def _watch(self, version: str) -> str:
        """The version to go on from; KubeError if the stream is of no more use."""
        stream = self._client.watch(
            self._path, resource_version=version, timeout_s=_WATCH_S, read_timeout_s=_READ_S
        )
        async for line in stream:
            try:
                event = _decode(line)
            except msgspec.DecodeError as error:
                raise KubeError(f"a broken line in a watch: {error}") from error
            if event["type"] == "ERROR":
                raise KubeError(str(event["object"].get("message")))
            version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                self._apply(event["type"], event["object"])
        return version

    def _apply(self, event: str, each: Json) -> None:
        if event == "DELETED":
            self.objects.pop(key_of(each), None)
        else:
            self.objects[key_of(each)] = each
        self._notify(event, each)


def key_of(each: Json) -> tuple[str, str]:
    metadata = each["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def uid_of(each: Json) -> str:
    return str(each["metadata"]["uid"])

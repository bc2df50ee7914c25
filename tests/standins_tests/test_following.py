"""List and watch of the stand-ins: nothing is missed, whatever happens to the watch."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from kube import paths
from kube.client import ApiClient
from kube.clock import SystemClock
from kube.credentials import load_credentials
from tests.apiserver import EmbeddedCluster
from tests.standins.following import Following, Json
from tests.standins_tests.cluster import NAMESPACE, Admin
from tests.standins_tests.running import until

pytestmark = pytest.mark.anyio


class Followed:
    """What a follower of the pods of a namespace was told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.lists = 0

    def heard(self, event: str, pod: Json) -> None:
        self.told.append((event, pod["metadata"]["name"]))

    def listed(self) -> None:
        self.lists += 1


@pytest.fixture
async def followed(embedded: EmbeddedCluster, admin: Admin) -> AsyncIterator[Followed]:
    followed = Followed()
    kubeconfig = embedded.kubeconfig_for("follower", ["system:masters"])
    async with ApiClient(load_credentials(kubeconfig)) as client:
        following = Following(client, paths.pods(NAMESPACE), SystemClock(), followed.heard)
        task = asyncio.ensure_future(following.run(followed.listed))
        await until(lambda: followed.lists == 1)
        yield followed
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_changes_are_told_in_order(followed: Followed, admin: Admin) -> None:
    await admin.pod("a")
    await admin.client.patch(paths.pod(NAMESPACE, "a"), {"metadata": {"labels": {"n": "1"}}})
    await admin.delete("a")
    # The server marks a pod as deleted before it removes it, also when that is at once.
    expected = [("ADDED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    await until(lambda: followed.told == expected)
    assert followed.lists == 1


async def test_a_pod_that_vanished_unseen_is_told_as_deleted(
    followed: Followed, admin: Admin, embedded: EmbeddedCluster
) -> None:
    await admin.pod("a")
    await admin.pod("b")
    await until(lambda: len(followed.told) == 2)
    embedded.faults.swallow_events(1, resource="pods", type="DELETED")
    await admin.delete("a")
    embedded.faults.cut_watches()
    await until(lambda: followed.lists == 2)
    assert followed.told[-2:] == [("DELETED", "a"), ("MODIFIED", "b")]


async def test_a_pod_made_anew_unseen_is_a_deletion_and_an_addition(
    followed: Followed, admin: Admin, embedded: EmbeddedCluster
) -> None:
    await admin.pod("a")
    await until(lambda: len(followed.told) == 1)
    embedded.faults.swallow_events(3, resource="pods")
    await admin.delete("a")
    await admin.pod("a")
    embedded.faults.cut_watches()
    await until(lambda: followed.lists == 2)
    assert followed.told[1:] == [("DELETED", "a"), ("ADDED", "a")]


async def test_an_expired_version_leads_to_a_list(
    followed: Followed, admin: Admin, embedded: EmbeddedCluster
) -> None:
    gone = embedded.faults.gone(as_event=True, verb="watch", user="follower")
    embedded.faults.cut_watches()
    await until(lambda: gone.hits == 1 and followed.lists >= 2)
    await admin.pod("a")
    await until(lambda: followed.told == [("ADDED", "a")])

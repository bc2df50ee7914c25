"""Very many engines, some of which do not answer."""

from __future__ import annotations

import pytest

from tests.apiserver import EmbeddedCluster
from tests.routers.measure import measure


@pytest.mark.anyio
async def test_many_that_do_not_answer_delay_neither_an_add_nor_a_removal(
    embedded: EmbeddedCluster,
) -> None:
    """With a time-out that nobody waits for; the figures at full size are a benchmark's."""
    figures = await measure(embedded, engines=250, dead=100, timeout_s=120.0, await_dead=False)
    assert figures["answering_listed_s"] < 60
    assert figures["ghosts_gone_s"] < 60
    assert figures["answers_asked_again"] == 0

"""What a router's list of workers lacks and has too much of.

Invariant: pure; what nobody claimed is never removed, and what is under way is not asked twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from controller.routers.dialects import Entry, Observed, base_url, engine_url
from controller.routers.kinds import Difference
from controller.routers.ownership import Claim


def compare(
    entries: Mapping[str, Entry],
    observed: Iterable[Observed],
    claims: Mapping[str, Claim],
    *,
    waiting: Collection[str] = (),
    limbo: Collection[str] = (),
    undecided: Collection[str] = (),
) -> Difference:
    """What a replica's list lacks and has too much of.

    `waiting` were asked for and are not to be asked again yet; `limbo` may still appear although
    nobody wants them. Of engines in `undecided`, what is listed stays as it is.

    Entries that nobody claimed are foreign and left alone, unless they are at the address of an
    engine: then they are ours from now on, and leave with it.
    """
    listed: dict[str, list[Observed]] = {}
    for worker in observed:
        listed.setdefault(base_url(worker.url), []).append(worker)
    pending = {url for url in (*waiting, *limbo) if url not in listed}
    remove, change, claim = [], [], []
    for url, workers in listed.items():
        entry = entries.get(url)
        if engine_url(url) in undecided:
            continue
        if all(worker.draining for worker in workers):
            # Wanted again or not: until it has left, an add would be refused or undone.
            if entry is not None or url in claims:
                pending.add(url)
        elif entry is None:
            if url in claims:
                remove.append(url)
        else:
            if url not in claims or claims[url].uid != entry.uid:
                claim.append(url)
            if any(worker.pending for worker in workers):
                pending.add(url)
            elif entry.model and any(worker.model != entry.model for worker in workers):
                change.append(url)
    add = [url for url in entries if url not in listed and url not in pending]
    return Difference(
        add=tuple(add),
        remove=tuple(remove),
        change=tuple(change),
        pending=tuple(sorted(pending)),
        claim=tuple(claim),
    )

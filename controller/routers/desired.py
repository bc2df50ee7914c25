"""The desired set of one router: engines that serve, with what each said of itself.

Invariant: pure; an engine is not in it before it has answered, and what a dead incarnation said
is never told of its successor.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from controller.routers.engines import Engine, Fleet
from controller.routers.probes import Facts


@dataclass(frozen=True, slots=True)
class Backend:
    """One engine with what it said of itself; `asked` is false while that was said under an
    earlier key, such as before its last stamp."""

    engine: Engine
    models: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    asked: bool = True


@dataclass(frozen=True, slots=True)
class Desired:
    """What a router should have: engines by URL, and, for EndpointSlices, all with an address.

    `undecided` are URLs of engines that serve and have not answered yet, of which a router may
    know from before: what it has of them stays as it is.
    """

    backends: Mapping[str, Backend]
    addressed: tuple[Engine, ...] = ()
    undecided: frozenset[str] = frozenset()


class Knowledge(Protocol):
    """The part of a Prober that is asked here."""

    def facts(self, engine: Engine) -> Facts | None: ...

    def asked(self, engine: Engine) -> bool: ...


def desired_of(
    fleet: Fleet,
    knowledge: Knowledge,
    last: Mapping[str, Backend],
    retained: Collection[str] = (),
    inherited: Collection[str] = (),
) -> Desired:
    """Who should be in the router now.

    `inherited` are URLs that the router had when this term began, or of which that is not known:
    as long as their engines serve without having answered, nothing is decided about them. A new
    leader must not empty the routers because it has not asked anybody yet.

    `last` are the backends so far; those in `retained` stay although the fleet lacks them, until
    their removal is confirmed. A successor at a URL that the router already has keeps that entry
    while it is asked for the first time, without its predecessor's adapters: taking the entry
    away for that moment would only lose requests.
    """
    backends = {url: last[url] for url in retained if url in last}
    undecided: set[str] = set()
    for url, engine in fleet.serving.items():
        facts = knowledge.facts(engine)
        if facts is not None:
            if not facts.sleeping:
                asked = knowledge.asked(engine)
                backends[url] = Backend(engine, facts.models, facts.adapters, asked)
        elif url in last and not knowledge.asked(engine):
            backends[url] = replace(last[url], engine=engine, adapters=(), asked=False)
        elif url in inherited:
            undecided.add(url)
    return Desired(backends, fleet.addressed, frozenset(undecided))


def needs_confirmation(
    last: Collection[str], serving: Collection[str], max_share: float, *, first: bool
) -> bool:
    """Whether a removal is so large that a list which is wrong must be thought of.

    That is: none is left, or more than `max_share` of what the router has would go. In the
    first pass, an empty set needs it even if nothing is known of what the router has.
    """
    if first and not serving:
        return True
    lost = set(last).difference(serving)
    if not lost:
        return False
    return not serving or len(lost) > max_share * len(last)

"""What has to happen to a pod, written by hand from the rules; shares no code with the classifier.

For each combination it names every obstacle that forbids a delete. A classifier is right if it
reaps exactly where there is none, in the shape named, and keeps for one of the obstacles otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """One point of the matrix, in the words of the rules."""

    managed: bool = True
    terminating: bool = False
    phase: str = "Failed"
    owner: str = "podset"
    containers: str = "all-terminated"
    node: str = "not-asked"
    believed: bool = True
    record: str = "none"
    restore: bool = False
    address: str = "none"
    sandbox: str = "False"


RUNNING_SOMEWHERE = {"one-running", "init-running", "ephemeral-running"}


def terminal_obstacles(case: Case) -> set[str]:
    """Why the terminal reaper must leave this pod alone; empty: it must reap it."""
    found = set()
    if not case.managed:
        found.add("unmanaged")
    if case.terminating:
        found.add("terminating")
    if case.phase == "Pending":
        found.add("pending")
    elif case.phase == "Running":
        found.add("running")
    elif case.phase not in {"Failed", "Succeeded"}:
        found.add("unknown-phase")
    if case.owner != "podset":
        found.add("owner")
    if not case.believed:
        found.add("unverified")
    if case.containers in RUNNING_SOMEWHERE and case.node in {"not-asked", "present"}:
        found.add("container-running")
    return found


def retired_obstacles(case: Case) -> set[str]:
    """Why the retired reaper must leave this pod alone; empty: it must reap it."""
    found = set()
    if not case.managed:
        found.add("unmanaged")
    if case.terminating:
        found.add("terminating")
    if case.phase == "Running":
        found.add("running")
    elif case.phase not in {"Pending", "Failed", "Succeeded"}:
        found.add("unknown-phase")
    if case.owner == "job":
        found.add("owner")
    if not case.believed:
        found.add("unverified")
    record = {
        "none": "not-retired",
        "mismatch": "mismatch",
        "ambiguous": "ambiguous",
        "unreadable": "unreadable",
        "active": "active",
        "active-replaced": "active",
    }.get(case.record)
    if record:
        found.add(record)
    if case.phase == "Pending":
        if case.record not in {"replaced", "active-replaced"}:
            found.add("pending")
        if case.restore:
            found.add("restore")
        if case.address != "none":
            found.add("has-address")
        if case.sandbox != "False":
            found.add("may-have-started")
    elif case.containers != "all-terminated":
        found.add("not-terminated")
    return found


def retired_shape(case: Case) -> str:
    """The shape of a pod without obstacles."""
    return "replaced-never-started" if case.phase == "Pending" else "terminal-retired"

"""What the leader knows of each managed pod, as the JSON of /status; a follower knows nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.verdict import Keep, Reap, Verdict, combine

if TYPE_CHECKING:
    from controller.configfile import LiveConfig
    from controller.term import Term
    from kube.pod import Pod
    from kube.store import Store


def report(
    identity: str, pods: Store[Pod], config: LiveConfig, term: Term | None
) -> dict[str, Any]:
    """Plain values; ages and times left are in seconds."""
    answer: dict[str, Any] = {
        "identity": identity,
        "leader": term is not None,
        "storeAgeSeconds": round(pods.age_s(), 3) if pods.synced else None,
        "configProblem": config.problem,
        "terminal": {
            "enabled": config.current.terminal.enabled,
            "dryRun": config.current.terminal.dry_run,
        },
        "retired": {
            "enabled": config.current.retired.enabled,
            "dryRun": config.current.retired.dry_run,
        },
    }
    if term is not None:
        answer["pods"] = [_line(pod, term) for pod in pods.values()]
    return answer


def _line(pod: Pod, term: Term) -> dict[str, Any]:
    terminal = term.terminal.verdict(pod) if term.terminal else None
    retired = term.retired.verdict(pod) if term.retired else None
    verdict = combine(terminal, retired)
    remaining_s = None
    if isinstance(verdict, Reap):
        loop = term.terminal if verdict is terminal else term.retired
        remaining_s = loop.remaining_s(pod) if loop else None
    return {
        "namespace": pod.metadata.namespace,
        "pod": pod.metadata.name,
        "uid": pod.metadata.uid,
        **describe(verdict),
        "remainingSeconds": None if remaining_s is None else round(remaining_s, 1),
    }


def describe(verdict: Verdict) -> dict[str, Any]:
    """A verdict as plain values."""
    if isinstance(verdict, Keep):
        return {"verdict": "keep", "shape": None, "reason": verdict.reason}
    return {"verdict": "reap", "shape": str(verdict.shape), "reason": verdict.reason}

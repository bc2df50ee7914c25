"""Mutating and validating webhooks, called in the order and by the rules of kube-apiserver.

Mutating ones one after the other, sorted by configuration, each on what the one before left;
validating ones side by side. A failed call is left to the failure policy; a refusal is final.
"""

import asyncio
import logging
import uuid
from dataclasses import dataclass

from tests.apiserver.admission.attributes import Json, display_name
from tests.apiserver.admission.calls import Caller
from tests.apiserver.admission.conditions import conditions_hold
from tests.apiserver.admission.expressions import ExpressionError
from tests.apiserver.admission.matching import hook_matches
from tests.apiserver.admission.review import Answer, CallError, apply, ask, read, refusal
from tests.apiserver.admission.subject import ObjectSource, Subject
from tests.apiserver.errors import StatusError, bad_request, forbidden

GROUP = "admissionregistration.k8s.io"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hook:
    """One entry of a webhook configuration."""

    configuration: str
    index: int
    entry: Json

    @property
    def key(self) -> tuple[str, int]:
        return (self.configuration, self.index)

    @property
    def name(self) -> str:
        return str(self.entry.get("name", ""))

    @property
    def ignores_failure(self) -> bool:
        return self.entry.get("failurePolicy") == "Ignore"


class Webhooks:
    """The webhooks of one kind of configuration, read anew whenever the store changed."""

    def __init__(self, source: ObjectSource, resource: str, caller: Caller) -> None:
        self._source = source
        self._resource = resource
        self._caller = caller
        self._read_at = -1
        self._hooks: list[Hook] = []

    def hooks(self) -> list[Hook]:
        revision = self._source.revision(GROUP, self._resource)
        if revision != self._read_at:
            stored = self._source.objects(GROUP, self._resource)
            self._hooks = [
                Hook(each["metadata"]["name"], index, entry)
                for each in sorted(stored, key=lambda each: each["metadata"]["name"])
                for index, entry in enumerate(each.get("webhooks") or ())
            ]
            self._read_at = revision
        return self._hooks

    async def mutate(self, subject: Subject) -> Subject:
        """The subject as all mutating webhooks leave it; StatusError if one refuses or fails."""
        hooks = self.hooks()
        invoked: set[tuple[str, int]] = set()  # those that want to see a later change
        again: set[tuple[str, int]] = set()
        for is_reinvocation in (False, True):
            for hook in hooks:
                if is_reinvocation and hook.key not in again:
                    continue
                if not _concerns(hook, subject):
                    continue
                answer = await self._ask(hook, subject, mutating=True)
                if answer is not None and answer.patch:
                    obj = apply(hook.name, answer.patch, subject.obj)
                    if obj != subject.obj:
                        subject = subject.with_object(obj)
                        again |= invoked
                        invoked.clear()
                if hook.entry.get("reinvocationPolicy") == "IfNeeded":
                    invoked.add(hook.key)
            if not again:
                break
        return subject

    async def validate(self, subject: Subject) -> None:
        """Ask all validating webhooks; StatusError of the first, in their order, that refuses."""
        hooks = [hook for hook in self.hooks() if _concerns(hook, subject)]
        calls = (self._ask(hook, subject, mutating=False) for hook in hooks)
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _ask(self, hook: Hook, subject: Subject, *, mutating: bool) -> Answer | None:
        """The answer, None if the call failed and the failure policy is to ignore that."""
        try:
            answer = await self._call(hook, subject, mutating=mutating)
        except CallError as error:
            message = f'failed calling webhook "{hook.name}": {error}'
            if hook.ignores_failure:
                _log.info("%s (ignored)", message)
                return None
            raise StatusError(
                500,
                "InternalError",
                f"Internal error occurred: {message}",
                {"causes": [{"message": message}]},
            ) from error
        subject.attributes.warnings.extend(answer.warnings)
        if not answer.allowed:
            raise refusal(hook.name, answer.status)
        return answer

    async def _call(self, hook: Hook, subject: Subject, *, mutating: bool) -> Answer:
        entry = hook.entry
        if subject.attributes.dry_run and entry.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise bad_request(f'admission webhook "{hook.name}" does not support dry run')
        if "v1" not in (entry.get("admissionReviewVersions") or ()):
            raise CallError(
                "could not create admission objects: "
                "webhook does not accept known AdmissionReview versions (v1)"
            )
        uid = str(uuid.uuid4())
        review = await self._caller.post(
            entry.get("clientConfig") or {}, ask(uid, subject), entry.get("timeoutSeconds") or 10
        )
        return read(uid, review, mutating=mutating)


def _concerns(hook: Hook, subject: Subject) -> bool:
    """Whether to call; 403 if its conditions failed and the failure policy is Fail."""
    if not hook_matches(hook.entry, subject):
        return False
    conditions = hook.entry.get("matchConditions")
    if not conditions:
        return True
    subject.scope.enter(None, {})
    try:
        return conditions_hold(conditions, subject.scope, hook.entry.get("failurePolicy") or "Fail")
    except ExpressionError as error:
        attributes = subject.attributes
        name = display_name(attributes, subject.obj)
        raise forbidden(attributes.group, attributes.resource, name, str(error)) from error

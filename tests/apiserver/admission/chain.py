"""The admission chain of the embedded API server, apart from NamespaceLifecycle.

Mutating webhooks, then (on what they left, with system fields set) policies, then validating
webhooks. Configurations are read from the server's own store, so a change holds at once.
"""

import asyncio
from dataclasses import replace

from tests.apiserver.admission.attributes import Attributes, Json
from tests.apiserver.admission.calls import Caller, Timeout
from tests.apiserver.admission.checking import refuse_broken
from tests.apiserver.admission.matching import policies_may_see, webhooks_may_see
from tests.apiserver.admission.policies import Policies
from tests.apiserver.admission.subject import ObjectSource, Subject
from tests.apiserver.admission.webhooks import Webhooks


class AdmissionChain:
    """One for a server, used in its event loop.

    `services` maps (namespace, name) of a webhook's Service to a base URL, for tests.
    """

    def __init__(self, source: ObjectSource, timeout: Timeout = asyncio.timeout) -> None:
        self._source = source
        self._caller = Caller(source, timeout)
        self._mutating = Webhooks(source, "mutatingwebhookconfigurations", self._caller)
        self._validating = Webhooks(source, "validatingwebhookconfigurations", self._caller)
        self._policies = Policies(source)
        self.services = self._caller.services

    async def mutate(
        self, attributes: Attributes, obj: Json | None, old: Json | None
    ) -> Json | None:
        """The object as mutating webhooks leave it; `obj` itself is never changed.

        `obj` is None on DELETE. Raises StatusError.
        """
        if not webhooks_may_see(attributes) or not self._mutating.hooks():
            return obj
        subject = Subject(attributes, obj, old, self._source)
        return (await self._mutating.mutate(subject)).obj

    async def validate(self, attributes: Attributes, obj: Json | None, old: Json | None) -> None:
        """Raise StatusError if a policy or a validating webhook refuses."""
        refuse_broken(attributes, obj)
        if not attributes.name and obj is not None:
            # By now a generated name is there; the warnings stay one list for both stages.
            name = (obj.get("metadata") or {}).get("name") or ""
            attributes = replace(attributes, name=name)
        subject = Subject(attributes, obj, old, self._source)
        if policies_may_see(attributes):
            self._policies.validate(subject)
        if webhooks_may_see(attributes):
            await self._validating.validate(subject)

    async def aclose(self) -> None:
        """Close the kept connections."""
        await self._caller.aclose()

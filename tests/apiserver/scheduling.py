"""What only pods can be asked for: to be bound to a node, and to be evicted from it."""

from __future__ import annotations

from tests.apiserver import errors, pods
from tests.apiserver.admission.selectors import selects
from tests.apiserver.call import Call, DeleteOptions, Target, attributes_of, stored
from tests.apiserver.deletion import Deletion
from tests.apiserver.errors import Cause
from tests.apiserver.gate import Admission
from tests.apiserver.kinds import Object
from tests.apiserver.storage import Storage

HELD_BACK = "Cannot evict pod as it would violate the pod's disruption budget."


class Scheduling:
    def __init__(self, storage: Storage, admission: Admission, deletion: Deletion) -> None:
        self._storage = storage
        self._admission = admission
        self._deletion = deletion

    async def bind(
        self, call: Call, target: Target, binding: Object, *, legacy: bool = False
    ) -> None:
        """POST pods/binding or (legacy) bindings: 409 when it is bound or going."""
        pod = stored(self._storage, target)
        node = (binding.get("target") or {}).get("name")
        if not node:
            raise errors.StatusError(500, "", "target.name: Required value")
        attributes = attributes_of(call, target, "CREATE", binding, "CreateOptions")
        attributes.kind, attributes.kind_group, attributes.kind_version = "Binding", "", "v1"
        if legacy:
            attributes.resource, attributes.subresource = "bindings", ""
        admitted = await self._admission.mutate(attributes, binding, None)
        await self._admission.validate(attributes, admitted, None)
        pod = stored(self._storage, target)
        why = ""
        if pod.object["metadata"].get("deletionTimestamp"):
            why = f"pod {target.name} is being deleted, cannot be assigned to a host"
        elif pod.object["spec"].get("nodeName"):
            assigned = pod.object["spec"]["nodeName"]
            why = f'pod {target.name} is already assigned to node "{assigned}"'
        elif pod.object["spec"].get("schedulingGates"):
            why = f"pod {target.name} has non-empty .spec.schedulingGates"
        if why:
            raise errors.conflict("", "pods/binding", target.name, why)
        if not call.dry_run:
            bound = pods.bind(pod.object, node, admitted or binding)
            self._storage.put("pods", target.namespace, target.name, bound)

    async def evict(
        self, call: Call, target: Target, eviction: Object, options: DeleteOptions
    ) -> None:
        """POST pods/eviction: a delete that a PodDisruptionBudget may hold back with 429."""
        pod = stored(self._storage, target).object
        attributes = attributes_of(call, target, "CREATE", eviction, "CreateOptions")
        attributes.kind, attributes.kind_group, attributes.kind_version = (
            "Eviction",
            "policy",
            "v1",
        )
        admitted = await self._admission.mutate(attributes, eviction, None)
        await self._admission.validate(attributes, admitted, None)
        phase = (pod.get("status") or {}).get("phase")
        exempt = phase in (*pods.TERMINAL, "Pending") or pod["metadata"].get("deletionTimestamp")
        if not exempt:
            self._check_budgets(target, pod)
        if not call.dry_run:
            current = stored(self._storage, target).object
            marked = pods.evicted(current)
            if marked != current:
                self._storage.put("pods", target.namespace, target.name, marked)
        await self._deletion.delete(call, target, options)

    def _check_budgets(self, target: Target, pod: Object) -> None:
        labels = pod["metadata"].get("labels") or {}
        for record in self._storage.list("poddisruptionbudgets.policy", target.namespace):
            budget = record.object
            if not selects((budget.get("spec") or {}).get("selector"), labels):
                continue
            status = budget.get("status") or {}
            if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
                why = f"The disruption budget {record.name} is still being processed by the server."
                raise errors.too_many_requests(
                    HELD_BACK,
                    10,
                    [Cause("DisruptionBudget", why)],
                )
            if status.get("disruptionsAllowed", 0) <= 0:
                why = (
                    f"The disruption budget {record.name} needs "
                    f"{status.get('desiredHealthy', 0)} healthy pods and has "
                    f"{status.get('currentHealthy', 0)} currently"
                )
                raise errors.too_many_requests(
                    HELD_BACK,
                    0,
                    [Cause("DisruptionBudget", why)],
                )

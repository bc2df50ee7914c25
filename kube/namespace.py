"""Namespaces, as far as podstamp reads them."""

import msgspec

from kube.meta import ObjectMeta


class NamespaceStatus(msgspec.Struct, frozen=True, gc=False):
    """`status`; the phase is Active or Terminating."""

    phase: str = ""


class Namespace(msgspec.Struct, frozen=True, gc=False):
    """One namespace; `metadata.namespace` is empty."""

    metadata: ObjectMeta = ObjectMeta()
    status: NamespaceStatus = NamespaceStatus()

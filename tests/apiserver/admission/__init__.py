"""Admission of the embedded API server: webhooks and CEL policies."""

from tests.apiserver.admission.attributes import Attributes
from tests.apiserver.admission.chain import AdmissionChain

__all__ = ["AdmissionChain", "Attributes"]

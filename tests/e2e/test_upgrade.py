"""From one applied version to the next, with pods created all the while."""

import yaml

from tests.e2e.installation import Installation
from tests.e2e.pods import Manifest, pod, text
from tests.e2e.steps import create
from tests.e2e.waiting import eventually
from tests.kubectl import Kubectl

WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def older(manifests: str) -> list[Manifest]:
    """As an earlier version might have been: entries, a policy and a permission were missing."""
    found: list[Manifest] = [each for each in yaml.safe_load_all(manifests) if each]
    for each in found:
        if each["kind"] in WEBHOOKS:
            each["webhooks"] = [
                entry for entry in each["webhooks"] if not entry["name"].startswith("adapters.")
            ]
        if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", "podstamp-controller"):
            each["rules"] = each["rules"][:-1]
    return [each for each in found if each["metadata"]["name"] != "podstamp-status"]


def bundles(kubectl: Kubectl) -> dict[str, str]:
    return {
        entry["name"]: entry["clientConfig"].get("caBundle", "")
        for kind in WEBHOOKS
        for entry in kubectl.json("get", kind, "podstamp")["webhooks"]
    }


def test_an_upgrade_keeps_the_bundles_and_fills_the_new_ones(
    kubectl: Kubectl, namespace: str, podstamp: Installation
) -> None:
    current = podstamp.manifests()
    previous = older(current)
    gone = {"validatingadmissionpolicy", "validatingadmissionpolicybinding"}
    for kind in sorted(gone):
        kubectl("delete", kind, "podstamp-status")
    kubectl("apply", "-f", "-", stdin=text(*previous))
    before = bundles(kubectl)
    assert not [name for name in before if name.startswith("adapters.")]
    assert all(before.values())

    for index, document in enumerate(yaml.safe_load_all(current)):
        if document:
            result = kubectl.run("apply", "-f", "-", stdin=text(document))
            assert (result.code, result.err) == (0, "")
            create(kubectl, pod(f"engine-{index}", namespace))
    after = eventually(
        lambda: found if all((found := bundles(kubectl)).values()) else None,
        "every entry has a caBundle",
        timeout_s=10.0,
    )
    assert {name for name in after if name.startswith("adapters.")} == {
        "adapters.mutate.podstamp.dev",
        "adapters.validate.podstamp.dev",
    }
    assert {name: after[name] for name in before} == before
    made = kubectl.json("get", "pods", "-n", namespace)["items"]
    assert len(made) > 10
    assert all("podstamp.dev/incarnation" in item["metadata"]["annotations"] for item in made)

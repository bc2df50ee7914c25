"""What a person sees of admission, through kubectl and a real kube-apiserver."""

import uuid

import pytest

from tests.e2e.pods import AIBRIX_INDEX, Manifest, member, pod, text
from tests.e2e.steps import INCARNATION, create, incarnation, metadata, new_podset
from tests.e2e.waiting import eventually
from tests.kubectl import Kubectl


def test_a_created_pod_shows_its_stamps(kubectl: Kubectl, namespace: str) -> None:
    owner = new_podset(kubectl, namespace)
    create(kubectl, member(owner, 2, annotations={"podstamp.dev/adapters": "sql,chat"}))
    found = metadata(kubectl, namespace, "llama-2")
    assert found["labels"]["podstamp.dev/managed"] == "true"
    assert found["labels"]["podstamp.dev/podset"] == "llama"
    assert found["labels"]["podstamp.dev/podset-index"] == "2"
    assert found["labels"][AIBRIX_INDEX] == "2"
    assert uuid.UUID(found["annotations"][INCARNATION]).version == 7
    assert found["annotations"][INCARNATION] != found["uid"]
    assert len(found["annotations"]["podstamp.dev/adapters-digest"]) == 16
    assert found["annotations"]["lora-modified"].endswith("Z")


def test_kubectl_run_is_stamped_too(kubectl: Kubectl, namespace: str) -> None:
    kubectl("run", "engine", "--image=vllm/vllm-openai", "-n", namespace)
    assert incarnation(kubectl, namespace, "engine")


def test_a_generated_name_is_stamped_without_an_index(kubectl: Kubectl, namespace: str) -> None:
    owner = new_podset(kubectl, namespace)
    made = member(owner, 0)
    del made["metadata"]["name"]
    made["metadata"]["generateName"] = "llama-"
    del made["metadata"]["labels"][AIBRIX_INDEX]
    create(kubectl, made)
    [found] = kubectl.json("get", "pods", "-n", namespace)["items"]
    assert found["metadata"]["name"].startswith("llama-")
    assert found["metadata"]["labels"]["podstamp.dev/managed"] == "true"
    assert "podstamp.dev/podset-index" not in found["metadata"]["labels"]


def test_a_copied_manifest_is_another_incarnation(kubectl: Kubectl, namespace: str) -> None:
    create(kubectl, pod("first", namespace))
    copy = kubectl.json("get", "pod", "first", "-n", namespace)
    copy["metadata"] = {
        "name": "second",
        "namespace": namespace,
        "labels": copy["metadata"]["labels"],
        "annotations": copy["metadata"]["annotations"] | {"podstamp.dev/retired": "replaced"},
    }
    result = kubectl.run("create", "-f", "-", stdin=text(copy))
    assert result.code == 0
    assert "Warning:" in result.err
    assert "podstamp.dev/retired" in result.err
    assert incarnation(kubectl, namespace, "second") != incarnation(kubectl, namespace, "first")
    assert "podstamp.dev/retired" not in metadata(kubectl, namespace, "second")["annotations"]


def test_a_server_side_dry_run_answers_alike_and_stores_nothing(
    kubectl: Kubectl, namespace: str
) -> None:
    shown = kubectl.json(
        "create", "--dry-run=server", "-f", "-", stdin=text(pod("engine", namespace))
    )
    assert uuid.UUID(shown["metadata"]["annotations"][INCARNATION]).version == 7
    assert kubectl.json("get", "pods,events", "-n", namespace)["items"] == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("label", "podstamp.dev/managed-"), "podstamp.dev/managed"),
        (("label", "--overwrite", "podstamp.dev/podset-index=7"), "podstamp.dev/podset-index"),
        (
            ("annotate", "--overwrite", f"{INCARNATION}=018bcfe5-687b-7fff-bfff-ffffffffffff"),
            INCARNATION,
        ),
        (("label", "--overwrite", "podstamp.dev/enabled=false"), "podstamp.dev/enabled"),
    ],
    ids=["managed", "index", "incarnation", "enabled"],
)
def test_a_changed_stamp_is_refused_by_name(
    kubectl: Kubectl, namespace: str, command: tuple[str, ...], said: str
) -> None:
    create(kubectl, member(new_podset(kubectl, namespace), 1))
    before = metadata(kubectl, namespace, "llama-1")
    verb, *change = command
    result = kubectl.run(verb, "pod", "llama-1", "-n", namespace, *change)
    assert result.code == 1
    assert "podstamp.dev" in result.err
    assert said in result.err
    assert metadata(kubectl, namespace, "llama-1") == before


def test_a_taken_index_is_refused_and_the_holder_named(kubectl: Kubectl, namespace: str) -> None:
    owner = new_podset(kubectl, namespace)
    create(kubectl, member(owner, 1))
    holder = incarnation(kubectl, namespace, "llama-1")
    other = member(owner, 1)
    other["metadata"]["name"] = "impostor"
    result = eventually(
        lambda: (
            refused
            if (
                refused := kubectl.run("create", "--dry-run=server", "-f", "-", stdin=text(other))
            ).code
            else None
        ),
        "the webhook's store knows the holder",
    )
    assert "llama-1" in result.err
    assert holder in result.err
    assert "AlreadyExists" not in result.err


def test_a_name_that_contradicts_the_index_label_is_refused(
    kubectl: Kubectl, namespace: str
) -> None:
    wrong = member(new_podset(kubectl, namespace), 1, labels={AIBRIX_INDEX: "3"})
    result = kubectl.run("create", "-f", "-", stdin=text(wrong))
    assert result.code == 1
    assert AIBRIX_INDEX in result.err
    assert "llama-1" in result.err
    assert kubectl.json("get", "pods", "-n", namespace)["items"] == []


def test_an_unfenced_retirement_is_refused_with_the_command_that_works(
    kubectl: Kubectl, namespace: str
) -> None:
    create(kubectl, pod("engine", namespace))
    current = incarnation(kubectl, namespace, "engine")
    refused = kubectl.run(
        "annotate", "pod", "engine", "-n", namespace, "podstamp.dev/retired=suspended"
    )
    assert refused.code == 1
    assert current in refused.err
    assert "kubectl" in refused.err
    stale = kubectl.run(
        *("annotate", "pod", "engine", "-n", namespace, "podstamp.dev/retired=suspended"),
        "podstamp.dev/if-incarnation=018bcfe5-687b-7fff-bfff-ffffffffffff",
    )
    assert stale.code == 1
    assert "Conflict" in stale.err
    kubectl(
        *("annotate", "pod", "engine", "-n", namespace, "podstamp.dev/retired=suspended"),
        f"podstamp.dev/if-incarnation={current}",
    )
    stored = metadata(kubectl, namespace, "engine")["annotations"]
    assert stored["podstamp.dev/retired"] == "suspended"
    assert stored["podstamp.dev/retired-at"].endswith("Z")
    assert "podstamp.dev/if-incarnation" not in stored


def test_two_managers_apply_to_one_pod(kubectl: Kubectl, namespace: str) -> None:
    first = pod("engine", namespace, labels={"team": "blue"})
    second: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "engine",
            "namespace": namespace,
            "annotations": {"podstamp.dev/adapters": "sql"},
        },
    }
    apply = ("apply", "--server-side", "-f", "-")
    kubectl(*apply, "--field-manager=blue", stdin=text(first))
    before = incarnation(kubectl, namespace, "engine")
    kubectl(*apply, "--field-manager=green", stdin=text(second))
    kubectl(*apply, "--field-manager=blue", stdin=text(first))
    found = metadata(kubectl, namespace, "engine")
    assert found["annotations"][INCARNATION] == before
    assert found["annotations"]["podstamp.dev/adapters"] == "sql"
    assert found["labels"]["team"] == "blue"
    assert found["labels"]["podstamp.dev/managed"] == "true"
    assert len(found["annotations"]["podstamp.dev/adapters-digest"]) == 16


def test_client_side_apply_twice_changes_nothing(kubectl: Kubectl, namespace: str) -> None:
    manifest = text(pod("engine", namespace, labels={"team": "blue"}))
    kubectl("apply", "-f", "-", stdin=manifest)
    before = metadata(kubectl, namespace, "engine")
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=manifest)
    assert metadata(kubectl, namespace, "engine") == before


def test_declared_adapters_move_lora_modified_on(kubectl: Kubectl, namespace: str) -> None:
    create(kubectl, pod("engine", namespace, annotations={"podstamp.dev/adapters": "sql"}))
    before = metadata(kubectl, namespace, "engine")["annotations"]
    kubectl(
        *("annotate", "--overwrite", "pod", "engine", "-n", namespace),
        "podstamp.dev/adapters=sql,chat",
    )
    after = metadata(kubectl, namespace, "engine")["annotations"]
    assert after["lora-modified"] > before["lora-modified"]
    assert after["podstamp.dev/adapters-digest"] != before["podstamp.dev/adapters-digest"]
    refused = kubectl.run(
        *("annotate", "--overwrite", "pod", "engine", "-n", namespace),
        "podstamp.dev/adapters=sql,sql",
    )
    assert refused.code == 1
    assert "sql" in refused.err


def test_an_ephemeral_container_keeps_the_stamps(kubectl: Kubectl, namespace: str) -> None:
    create(kubectl, pod("engine", namespace))
    before = incarnation(kubectl, namespace, "engine")
    kubectl(
        *("debug", "engine", "-n", namespace, "--image=busybox", "--profile=general"),
        *("--attach=false", "--", "sleep", "1"),
    )
    found = kubectl.json("get", "pod", "engine", "-n", namespace)
    assert len(found["spec"]["ephemeralContainers"]) == 1
    assert found["metadata"]["annotations"][INCARNATION] == before


def test_a_debug_copy_is_a_pod_of_its_own(kubectl: Kubectl, namespace: str) -> None:
    create(kubectl, member(new_podset(kubectl, namespace), 1))
    kubectl(
        *("debug", "llama-1", "-n", namespace, "--image=busybox", "--profile=general"),
        *("--copy-to=copy", "--keep-labels", "--keep-annotations", "--attach=false"),
    )
    found = metadata(kubectl, namespace, "copy")
    assert found["annotations"][INCARNATION] != incarnation(kubectl, namespace, "llama-1")


def test_pods_born_before_are_adopted_and_only_then_managed(
    kubectl: Kubectl, namespace: str
) -> None:
    kubectl("label", "namespace", namespace, "podstamp.dev/enabled-")
    owner = new_podset(kubectl, namespace)
    create(kubectl, member(owner, 0), member(owner, 1), pod("other", namespace))
    assert INCARNATION not in metadata(kubectl, namespace, "llama-0").get("annotations", {})
    kubectl("label", "namespace", namespace, "podstamp.dev/enabled=true")
    kubectl("label", "pod", "other", "-n", namespace, "team=blue")
    assert "podstamp.dev/managed" not in metadata(kubectl, namespace, "other")["labels"]
    kubectl("label", "pod", "llama-0", "-n", namespace, "podstamp.dev/managed=true")
    kubectl("podstamp", "adopt", "llama-1", "-n", namespace)
    for index in (0, 1):
        found = metadata(kubectl, namespace, f"llama-{index}")
        assert found["labels"]["podstamp.dev/managed"] == "true"
        assert found["labels"]["podstamp.dev/podset-index"] == str(index)
        assert uuid.UUID(found["annotations"][INCARNATION]).version == 7


def test_namespaces_and_pods_that_did_not_opt_in_are_left_alone(
    kubectl: Kubectl, namespace: str
) -> None:
    create(kubectl, pod("out", namespace, labels={"podstamp.dev/enabled": "false"}))
    assert "annotations" not in metadata(kubectl, namespace, "out")
    create(kubectl, pod("out", "default"))
    assert "annotations" not in metadata(kubectl, "default", "out")
    kubectl("delete", "pod", "out", "-n", "default")

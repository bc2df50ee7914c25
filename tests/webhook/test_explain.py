"""`python -m webhook explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.errors import ConfigError
from tests.webhook.builders import OTHER, STORED, Object, changed, owner, pod, stamped
from tests.webhook.rows import FENCED_USER, IN_SET
from webhook.__main__ import run
from webhook.stamps import (
    ADAPTERS,
    IF_INCARNATION,
    INCARNATION,
    MANAGED,
    PODSET_INDEX,
    RETIRED,
    RETIRED_AT,
    incarnation_time,
)

SET_POD = pod("ps-3", namespace="models", owners=[owner()], annotations={RETIRED: "suspended"})
FIELDS = {
    "pod",
    "operation",
    "allowed",
    "code",
    "reason",
    "message",
    "rule",
    "warnings",
    "patch",
    "object",
}


def write(folder: Path, *pods: Object, name: str = "pod.yaml") -> str:
    file = folder / name
    file.write_text(yaml.safe_dump_all(pods))
    return str(file)


def explain(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert run(["explain", *arguments, "-o", "json"]) == 0
    answers: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert all(set(answer) == FIELDS for answer in answers)
    return answers


def test_a_create_shows_verdict_rule_patch_and_the_stamped_pod(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = explain(capsys, "-f", write(tmp_path, SET_POD))
    assert (answer["allowed"], answer["code"], answer["rule"]) == (True, 200, "create")
    assert RETIRED in answer["warnings"][0]
    metadata = answer["object"]["metadata"]
    assert metadata["labels"] == {MANAGED: "true", **IN_SET}
    assert incarnation_time(metadata["annotations"][INCARNATION]) is not None
    assert RETIRED not in metadata["annotations"]
    assert answer["object"]["spec"] == SET_POD["spec"]
    assert {"op": "remove", "path": "/metadata/annotations/podstamp.dev~1retired"} in answer[
        "patch"
    ]


def test_several_documents_are_one_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = pod("b", annotations={ADAPTERS: "x,x"})
    first, second = explain(capsys, "-f", write(tmp_path, pod("a"), bad))
    assert (first["pod"], first["allowed"]) == ("default/a", True)
    assert (second["pod"], second["allowed"], second["code"]) == ("default/b", False, 422)
    assert second["rule"] == "adapter-names"
    assert second["reason"] == "Invalid"
    assert "'x' is named twice" in second["message"]
    assert (second["object"], second["patch"]) == (None, [])


def test_an_update_is_judged_against_the_old_pod(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = write(tmp_path, stamped(), name="old.yaml")
    retire = {IF_INCARNATION: STORED, RETIRED: "suspended"}
    new = write(tmp_path, changed(stamped(), annotations=retire))
    (answer,) = explain(capsys, "-f", new, "--old", old)
    assert (answer["operation"], answer["allowed"], answer["rule"]) == ("UPDATE", True, "update")
    annotations = answer["object"]["metadata"]["annotations"]
    assert annotations.keys() == {INCARNATION, RETIRED, RETIRED_AT}
    stale = write(tmp_path, changed(stamped(), annotations=retire | {IF_INCARNATION: OTHER}))
    (answer,) = explain(capsys, "-f", stale, "--old", old, "--operation", "update")
    assert (answer["code"], answer["rule"]) == (409, "fence")
    assert f"{IF_INCARNATION}={STORED}" in answer["message"]


def test_updates_of_several_pods_are_paired_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = [stamped("a", labels={PODSET_INDEX: "1"}), stamped("b", labels={PODSET_INDEX: "2"})]
    old = write(tmp_path, *pods, name="old.yaml")
    new = write(tmp_path, *reversed(pods))
    first, second = explain(capsys, "-f", new, "--old", old)
    assert (first["pod"], first["allowed"]) == ("default/b", True)
    assert (second["pod"], second["allowed"]) == ("default/a", True)


def test_a_delete_is_judged_for_its_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "webhook.yaml"
    config.write_text(yaml.safe_dump({"fencedDeleters": {"users": [FENCED_USER], "groups": ["g"]}}))
    file = write(tmp_path, stamped())
    delete = ("-f", file, "--operation", "DELETE", "--config", str(config))
    (anyone,) = explain(capsys, *delete)
    assert (anyone["allowed"], anyone["rule"], anyone["patch"]) == (True, "delete", [])
    (fenced,) = explain(capsys, *delete, "--user", FENCED_USER)
    assert (fenced["code"], fenced["rule"]) == (409, "fenced-deleter")
    (member,) = explain(capsys, *delete, "--group", "g")
    assert member["code"] == 409


def test_a_wrongly_typed_pod_is_explained_as_it_would_be_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = explain(capsys, "-f", write(tmp_path, pod("a", labels={MANAGED: True})))
    assert (answer["allowed"], answer["code"], answer["rule"]) == (False, 400, "malformed")
    assert "metadata.labels" in answer["message"]


def test_a_key_without_a_value_is_an_empty_string(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(
        f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n    {IF_INCARNATION}:\n"
    )
    (answer,) = explain(capsys, "-f", str(file))
    assert answer["rule"] == "fence-on-create"


@pytest.mark.parametrize("metadata", [{}, None, {"labels": None}])
def test_a_pod_with_hardly_any_metadata_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], metadata: Any
) -> None:
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    (answer,) = explain(capsys, "-f", write(tmp_path, bare))
    assert answer["object"]["metadata"]["labels"] == {MANAGED: "true"}


def test_the_table_shows_the_same_for_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = pod("b", annotations={IF_INCARNATION: "x"})
    assert run(["explain", "-f", write(tmp_path, SET_POD, bad)]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0].split() == ["POD", "OPERATION", "VERDICT", "CODE", "RULE"]
    assert lines[1].split() == ["models/ps-3", "CREATE", "patched", "-", "create"]
    assert lines[2].split() == ["default/b", "CREATE", "denied", "409", "fence-on-create"]
    assert "# Conflict: pod default/b is being created" in text
    assert "# warning: " in text
    assert '# add /metadata/labels {"podstamp.dev/managed":"true",' in text
    assert "# remove /metadata/annotations/podstamp.dev~1retired\n" in text
    shown = [document for document in yaml.safe_load_all(text.split("\n\n", 1)[1]) if document]
    assert shown[0]["metadata"]["labels"][PODSET_INDEX] == "3"


def test_yaml_output_is_the_same_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "-f", write(tmp_path, SET_POD), "-o", "yaml"]) == 0
    (answer,) = yaml.safe_load(capsys.readouterr().out)
    assert set(answer) == FIELDS


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--operation", "UPDATE"], "--old FILE"),
        (["--operation", "CREATE", "--old", "FILE"], "no old pod"),
    ],
)
def test_a_question_that_makes_no_sense_is_told(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    file = write(tmp_path, pod())
    given = [file if argument == "FILE" else argument for argument in arguments]
    with pytest.raises(ConfigError, match=says):
        run(["explain", "-f", file, *given])


def test_a_pod_that_the_old_file_lacks_is_named(tmp_path: Path) -> None:
    old = write(tmp_path, stamped("a"), stamped("b"), name="old.yaml")
    new = write(tmp_path, stamped("a"), stamped("c"))
    with pytest.raises(ConfigError, match="document 2: no pod default/c"):
        run(["explain", "-f", new, "--old", old])

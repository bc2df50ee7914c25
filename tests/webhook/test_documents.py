"""Pods in files."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from kube.errors import ConfigError
from webhook.documents import read_pods

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\n"


def read(tmp_path: Path, text: str | bytes) -> list[dict[str, Any]]:
    file = tmp_path / "pods.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return [document.pod for document in read_pods(str(file))]


def names(pods: list[dict[str, Any]]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (POD % "a", ["a"]),
        (f"{POD % 'a'}---\n{POD % 'b'}", ["a", "b"]),
        (f"---\n# nothing\n---\n{POD % 'a'}---\n", ["a"]),
        ('{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}', ["a"]),
        (
            '{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod",'
            '"metadata":{"name":"a"}},{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"}}]}',
            ["a", "b"],
        ),
        ('{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"}}]}', ["a"]),
        ("\ufeff" + POD % "a", ["a"]),
    ],
    ids=["yaml", "several", "empty-documents", "json", "list", "pod-list", "bom"],
)
def test_pods_are_read(tmp_path: Path, text: str, found: list[str]) -> None:
    assert names(read(tmp_path, text)) == found


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO((POD % "a").encode())

    monkeypatch.setattr(sys, "stdin", Input())
    assert names([document.pod for document in read_pods("-")]) == ["a"]


def test_times_stay_text_as_they_do_for_kubectl(tmp_path: Path) -> None:
    text = POD % "a" + "status: {startTime: 2026-01-01T00:00:00Z, day: 2026-01-01}\n"
    (pod,) = read(tmp_path, text)
    assert pod["status"] == {"startTime": "2026-01-01T00:00:00Z", "day": "2026-01-01"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no document"),
        ("---\n---\n", "no document"),
        ("a: [", "line 1: not YAML"),
        ("{{", "not YAML"),
        ("a: b: c", "line 1: not YAML"),
        (b"\xff\xfe", "not UTF-8"),
        (b"a: \x00", "not YAML"),
        ("just text", "a str, not a pod"),
        ("- a\n- b", "a list, not a pod"),
        ("{}", "kind None"),
        ("apiVersion: apps/v1\nkind: Deployment", "kind 'Deployment', apiVersion 'apps/v1'"),
        ("apiVersion: v2\nkind: Pod", "apiVersion 'v2'"),
        (f"{POD % 'a'}---\nkind: Service\napiVersion: v1", "document 2: not a pod"),
        ('{"apiVersion":"v1","kind":"List","items":[{"kind":"Node","apiVersion":"v1"}]}', "item 1"),
        ('{"apiVersion":"v1","kind":"List","items":5}', "no list"),
        (POD % "a" + "spec: {? {a: b} : c}", "not YAML"),
        (POD % "a" + "spec: {null: c}", "cannot be sent as JSON"),
        (POD % '"\\ud800"', "JSON"),
        ("a: *nobody", "not YAML"),
        ("!!python/object:os.system {}", "not YAML"),
        (POD % "a" + "spec: !!bool maybe", "not YAML"),
        (POD % "a" + "spec: !!timestamp x", "not YAML"),
        (POD % "a" + 'spec: !!int ""', "not YAML"),
    ],
    ids=range(23),
)
def test_what_is_no_pod_is_told_in_one_line(tmp_path: Path, text: str | bytes, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert "pods.yaml" in message
    assert says in message
    assert "\n" not in message


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: No such file"):
        read_pods(str(tmp_path / "nowhere"))

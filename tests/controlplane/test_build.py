"""The build's decisions; the build itself is what `make e2e` starts with."""

from pathlib import Path

import pytest

from tests.controlplane import ControlPlaneError
from tests.controlplane.build import (
    ASSETS_VARIABLE,
    Module,
    binaries,
    cache_key,
    kubernetes_version,
    modules,
    version_flags,
)


def module(folder: Path, **changes: str) -> Module:
    for name, content in {"go.mod": "module m", "go.sum": "a", "main.go": "package main"}.items():
        (folder / name).write_text(changes.get(name, content))
    return Module(folder, {"m": "."}, ("-s",))


def test_the_binaries_say_the_version_that_go_mod_pins() -> None:
    version = kubernetes_version("require k8s.io/kubernetes v1.37.2\n")
    assert version == "v1.37.2"
    flags = version_flags(version)
    assert "-X=k8s.io/component-base/version.gitVersion=v1.37.2" in flags
    assert "-X=k8s.io/component-base/version.gitMajor=1" in flags
    assert "-X=k8s.io/component-base/version.gitMinor=37" in flags


def test_every_staging_module_is_replaced_by_the_release_of_kubernetes() -> None:
    kubernetes = next(m for m in modules() if "kube-apiserver" in m.commands)
    text = kubernetes.go_mod.read_text()
    minor = kubernetes_version(text).removeprefix("v1.")
    lines = [line.split() for line in text.splitlines() if " => " in line]
    assert len(lines) > 30
    assert {(left == right, version) for left, _, right, version in lines} == {
        (True, f"v0.{minor}")
    }


@pytest.mark.parametrize("changed", ["go.mod", "go.sum", "main.go"])
def test_a_changed_file_is_another_build(tmp_path: Path, changed: str) -> None:
    before = cache_key("go1.26.0", (module(tmp_path),))
    assert cache_key("go1.26.0", (module(tmp_path),)) == before
    assert cache_key("go1.26.0", (module(tmp_path, **{changed: "b"}),)) != before


def test_another_go_and_other_flags_are_another_build(tmp_path: Path) -> None:
    built = module(tmp_path)
    before = cache_key("go1.26.0", (built,))
    assert cache_key("go1.26.1", (built,)) != before
    assert cache_key("go1.26.0", (Module(tmp_path, built.commands, ("-w",)),)) != before


def test_binaries_that_are_given_are_used_and_nothing_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [name for m in modules() for name in m.commands]
    for name in names:
        (tmp_path / name).touch()
    monkeypatch.setenv(ASSETS_VARIABLE, str(tmp_path))
    monkeypatch.setenv("PATH", "")
    assert binaries() == {name: tmp_path / name for name in names}


def test_a_given_folder_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ASSETS_VARIABLE, str(tmp_path / "absent"))
    with pytest.raises(ControlPlaneError, match=r"KUBEBUILDER_ASSETS.*absent is no folder"):
        binaries()

"""Adapters that a pod declares, as users of vLLM and SGLang write them."""

from __future__ import annotations

import pytest

from webhook.adapters import (
    Arguments,
    annotated_names,
    declared_adapters,
    name_problem,
    read_arguments,
)
from webhook.review import Container


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, []),
        ("", []),
        ("  ", []),
        ("chat", ["chat"]),
        (" chat , code", ["chat", "code"]),
        ("chat,", ["chat", ""]),
        ("a=b", ["a=b"]),
    ],
)
def test_the_annotation_is_split_at_commas(text: str | None, names: list[str]) -> None:
    assert annotated_names(text) == names


@pytest.mark.parametrize(
    ("names", "served", "says"),
    [
        (["a", ""], set(), "empty"),
        (["a", "b", "a"], set(), "'a' is named twice"),
        (["x" * 254], set(), "254 characters"),
        (["a", "base"], {"base"}, "served model name"),
        (["x" * 253, "b"], {"base"}, None),
        ([], {"base"}, None),
    ],
    ids=["empty", "twice", "long", "served", "fine", "none"],
)
def test_what_is_wrong_with_a_name_is_said(
    names: list[str], served: set[str], says: str | None
) -> None:
    problem = name_problem(names, served)
    assert (problem is None) if says is None else (says in (problem or ""))


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (["--lora-modules", "chat=/a", "code=/b"], ("chat", "code")),
        (["--lora-modules=chat=/a", "code=/b"], ("chat", "code")),
        (["--lora_modules", "chat=/a"], ("chat",)),
        (["--lora-modules", '{"name": "chat", "path": "/a"}', "code=/b"], ("chat", "code")),
        (["--lora-modules", "chat=/a", "--port", "80", "x=y"], ("chat",)),
        (["--lora-modules", "chat=/a", "--lora-modules", "code=/b"], ("chat", "code")),
        (["--lora-modules", "chat=$(DIR)/a=b"], ("chat",)),
        (["--lora-paths", "chat=/a", "org/code"], ("chat", "org/code")),
        (["--lora-paths", '{"lora_name": "chat", "lora_path": "/a", "pinned": true}'], ("chat",)),
        (["--lora-paths=chat=/a"], ("chat",)),
        (["--enable-lora", "--max-loras", "4"], ()),
        (["--lora-modules"], ()),
        (["x=/a", "--lora-modules", "-", "y=/a"], ()),
    ],
)
def test_adapters_of_arguments_are_read(args: list[str], names: tuple[str, ...]) -> None:
    found = read_arguments([Container(args=tuple(args))])
    assert (found.adapters, found.warnings) == (names, ())


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--lora-modules", "chat"], "'chat' cannot be read"),
        (["--lora-modules", "{"], "'{' cannot be read"),
        (["--lora-modules", '["chat"]'], "cannot be read"),
        (["--lora-modules", '{"name": 1}'], "cannot be read"),
        (["--lora-modules", '{"lora_name": "x"}'], "cannot be read"),
        (["--lora-modules", "{" * 100_000], "cannot be read"),
        (["--lora-modules", "$(NAME)=/a"], "$(NAME)"),
        (["--lora-modules", "=/a"], "empty name"),
        (["--lora-modules", f"{'x' * 254}=/a"], "254 characters"),
        (["-c", "exec vllm serve m --lora-modules chat=/a"], "cannot be read"),
        (["-c", "exec sglang --lora_paths chat=/a"], "cannot be read"),
    ],
    ids=range(11),
)
def test_what_cannot_be_read_is_a_warning(args: list[str], says: str) -> None:
    found = read_arguments([Container(args=tuple(args))])
    assert found.adapters == ()
    assert says in found.warnings[0]
    assert len(found.warnings) == 1


def test_an_adapter_that_arguments_name_twice_is_one_with_a_warning() -> None:
    found = read_arguments([Container(args=("--lora-modules", "a=/x", "a=/y"))])
    assert found.adapters == ("a",)
    assert "named twice" in found.warnings[0]


def test_command_and_arguments_are_one_list() -> None:
    container = Container(command=("vllm", "serve", "--lora-modules"), args=("chat=/a",))
    assert read_arguments([container]).adapters == ("chat",)


def test_flags_do_not_reach_into_the_next_container() -> None:
    first = Container(args=("--lora-modules", "chat=/a"))
    second = Container(args=("code=/b",))
    assert read_arguments([first, second, Container()]).adapters == ("chat",)


@pytest.mark.parametrize(
    ("words", "served"),
    [
        (["--model", "m"], {"m"}),
        (["--model=m"], {"m"}),
        (["--model-path", "m"], {"m"}),
        (["--model", "m", "--served-model-name", "a", "b"], {"a", "b"}),
        (["--served_model_name=a", "--model", "m"], {"a"}),
        (["vllm", "serve", "m"], {"m"}),
        (["/usr/bin/vllm", "serve", "m", "--served-model-name", "a"], {"a"}),
        (["vllm", "serve", "--port", "80"], set()),
        (["vllm", "bench", "m"], set()),
        (["serve", "m"], set()),
        (["--model", "$(MODEL)"], set()),
    ],
)
def test_the_served_names_are_found(words: list[str], served: set[str]) -> None:
    assert read_arguments([Container(command=tuple(words))]).served == served


def test_the_union_counts_and_a_name_in_both_is_no_duplicate() -> None:
    arguments = read_arguments([Container(args=("--lora-modules", "chat=/a", "tool=/b"))])
    declared = declared_adapters("code, chat", arguments)
    assert sorted(declared.names) == ["chat", "code", "tool"]
    assert declared.warnings == ()


def test_unusable_names_of_the_annotation_are_not_declared() -> None:
    declared = declared_adapters(f"chat,,{'x' * 254}", read_arguments([]))
    assert declared.names == ("chat",)


def test_equal_arguments_are_read_once_unless_they_are_huge() -> None:
    def read(path: str) -> object:
        return read_arguments([Container(args=("--lora-modules", f"chat=/{path}"))])

    assert read("a") is read("a")
    assert read("a" * 5000) is not read("a" * 5000)
    assert read("a" * 5000) == read("a")


def test_what_is_kept_of_huge_arguments_is_nothing() -> None:
    def read(*words: str) -> Arguments:
        return read_arguments([Container(args=words)])

    assert read("one", *[""] * 5000) is not read("one", *[""] * 5000)
    many = read("--lora-modules", *(f"x{at}=/" for at in range(2000)))
    served = read("--served-model-name", "m" * 5000)
    odd = read("--lora-modules", *(f"=/{at}" for at in range(500)))
    for arguments in (many, served, odd):
        assert declared_adapters("a", arguments) is not declared_adapters("a", arguments)
    small = read("--lora-modules", "x=/")
    assert declared_adapters("a", small) is declared_adapters("a", small)

import json
import logging
from collections.abc import Iterator

import pytest

from kube.errors import ConfigError
from kube.logs import configure, get_logger


@pytest.fixture(autouse=True)
def root() -> Iterator[None]:
    """Leave the root logger as it was."""
    logger = logging.getLogger()
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


def test_text_is_one_line_of_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    get_logger("kube.x").info(
        "a pod is gone", namespace="ns", name="a b", count=3, dry=True, empty="", none=None
    )
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    time, _, rest = line.partition(" ")
    assert time.startswith("time=20")
    assert time.endswith("Z")
    assert rest == (
        'level=info logger=kube.x msg="a pod is gone" namespace=ns name="a b" count=3 dry=true'
        ' empty=""\n'
    )


def test_json_is_one_object_on_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure(format="json")
    get_logger("x").warning("odd", error=ValueError("two\nlines"), count=3, name="ü")
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    fields = json.loads(line)
    assert fields.pop("time").endswith("Z")
    assert fields == {
        "level": "warning",
        "logger": "x",
        "msg": "odd",
        "error": "two\nlines",
        "count": 3,
        "name": "ü",
    }


@pytest.mark.parametrize("value", ['a"b', "a=b", "two\nlines", "tab\t", "a\x1b[31m", "\u2028"])
def test_no_value_breaks_out_of_its_field(capsys: pytest.CaptureFixture[str], value: str) -> None:
    configure()
    get_logger("x").info("m", key=value, after="ok")
    line = capsys.readouterr().err
    assert len(line.splitlines()) == 1
    assert line.endswith(" after=ok\n")
    quoted = line.split("key=")[1].removesuffix(" after=ok\n")
    assert json.loads(quoted) == value


def test_percent_signs_in_a_message_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    get_logger("x").info("100 %s")
    assert 'msg="100 %s"' in capsys.readouterr().err


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_traceback_stays_on_the_line(capsys: pytest.CaptureFixture[str], format: str) -> None:
    configure(format=format)
    try:
        raise KeyError("why")
    except KeyError:
        get_logger("x").exception("it broke", pod="a")
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "Traceback" in line
    assert "KeyError" in line


@pytest.mark.parametrize(
    ("level", "seen"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_the_level_says_what_is_written(
    capsys: pytest.CaptureFixture[str], level: str, seen: list[str]
) -> None:
    configure(level=level, format="json")
    log = get_logger("x")
    log.debug("m")
    log.info("m")
    log.warning("m")
    log.error("m")
    lines = capsys.readouterr().err.splitlines()
    assert [json.loads(line)["level"] for line in lines] == seen


def test_configuring_twice_does_not_write_twice(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    configure(format="json")
    get_logger("x").info("m")
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_requests_of_http_libraries_are_not_logged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure()
    logging.getLogger("httpx").info("HTTP Request: GET https://api")
    logging.getLogger("httpx").warning("odd")
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "loud"}, "log level 'loud' is not one of debug, info, warning, error"),
        ({"format": "xml"}, "log format 'xml' is not one of text, json"),
    ],
)
def test_an_unknown_level_or_format_is_the_users_mistake(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        configure(**options)
    assert str(caught.value) == message

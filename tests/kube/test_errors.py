import pytest

from kube.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    api_error,
)

STATUS = b'{"kind":"Status","code":409,"reason":"%b","message":"no","details":{"name":"a"}}'


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequest),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Gone),
        (413, TooLarge),
        (422, Invalid),
        (429, TooManyRequests),
        (500, ServerError),
        (503, ServerError),
        (418, ApiError),
        (302, ApiError),
    ],
)
def test_each_status_has_its_exception(status: int, kind: type[ApiError]) -> None:
    error = api_error(status, b"", call="GET /api")
    assert type(error) is kind
    assert error.status == status
    assert str(error) == f"HTTP {status} for GET /api"


def test_a_status_object_tells_reason_message_and_details() -> None:
    error = api_error(409, STATUS % b"Conflict", call="PUT /x")
    assert (error.reason, error.message, error.details) == ("Conflict", "no", {"name": "a"})
    assert str(error) == "no"


def test_a_taken_name_is_not_any_conflict() -> None:
    assert type(api_error(409, STATUS % b"AlreadyExists")) is AlreadyExists
    assert type(api_error(409, STATUS % b"Conflict")) is Conflict


@pytest.mark.parametrize(
    ("body", "header", "expected"),
    [
        (b'{"kind":"Status","details":{"retryAfterSeconds":3}}', None, 3.0),
        (b'{"kind":"Status","details":{"retryAfterSeconds":3}}', 7.0, 7.0),
        (b'{"kind":"Status","details":{"retryAfterSeconds":"x"}}', None, None),
        (b'{"kind":"Status"}', None, None),
    ],
    ids=["details", "header wins", "unreadable", "absent"],
)
def test_the_wish_to_wait_is_taken_from_header_or_details(
    body: bytes, header: float | None, expected: float | None
) -> None:
    assert api_error(429, body, retry_after_s=header).retry_after_s == expected


@pytest.mark.parametrize(
    "body",
    [b"<html>\n<h1>Bad gateway</h1>", b"\xff\xfe", b'{"kind":"Status","details":7}', b"[1]"],
    ids=["html", "no text", "wrong type", "no object"],
)
def test_an_answer_that_is_no_status_still_makes_one_line(body: bytes) -> None:
    text = str(api_error(502, body, call="GET /api"))
    assert text.startswith("HTTP 502 for GET /api")
    assert "\n" not in text

"""Answers that are errors: a status, and what an API or a proxy says with it."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentnb.core.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    InvalidRequest,
    LlmError,
    ModelNotFound,
    Overloaded,
    RateLimited,
    ServerFailed,
)
from tests.faults.fault import AGENT, NOBODY, TRANSPORT, Fault
from tests.faults.wire import Wire
from tests.loopback import Reply

WAIT = "Wait a little, or run fewer agents at a time."
FEWER = "Run fewer agents at a time."
KEY = (
    "Set {key} to a key that is valid there, and check {url} if it is set; the next run uses them."
)
CHANGE = "The same request would be refused again: change what it asks for."
WEB_PAGE = {"content-type": "text/html; charset=utf-8"}
IN_50_S = 50.0


def _answer(
    status: int,
    kind: type[LlmError],
    told: str,
    *,
    calls: int,
    name: str = "",
    waits_s: tuple[float, float] | None = None,
    **fields: Any,
) -> Fault:
    return Fault(
        name=name or str(status),
        reply=lambda _wire, _text: Reply(status=status, **fields),
        calls=calls,
        kind=kind,
        says=f"{{host}} answered {status}{told}",
        waits_s=waits_s,
        breaks_connection=False,
    )


def _limited(
    name: str, headers: Mapping[str, str], waits_s: tuple[float, float] | None = None
) -> Fault:
    return _answer(
        429,
        RateLimited,
        " ({kind 429}): Too many tokens per minute. " + (FEWER if waits_s else WAIT),
        calls=TRANSPORT,
        name=name,
        waits_s=waits_s,
        message="Too many tokens per minute.",
        headers=headers,
    )


def _limited_for_long(name: str, header: str, told: str) -> Fault:
    fault = _answer(
        429,
        RateLimited,
        f" ({{kind 429}}): Come back later. {FEWER}",
        calls=NOBODY,
        name=name,
        message="Come back later",
        headers={"retry-after": header},
    )
    return replace(
        fault,
        says=f"The provider asks to wait {told}, which is longer than the 60 s that a run waits: "
        f"run it again then (its error was '{fault.says}').",
    )


def _limited_until_a_date() -> Fault:
    def reply(_wire: Wire, _text: str) -> Reply:
        date = email.utils.formatdate(time.time() + IN_50_S, usegmt=True)
        return Reply(status=429, message="Not yet", headers={"retry-after": date})

    return Fault(
        name="429 until a date",
        reply=reply,
        calls=TRANSPORT,
        kind=RateLimited,
        says=f"{{host}} answered 429 ({{kind 429}}): Not yet. {FEWER}",
        waits_s=(10.0, IN_50_S),  # however slow the machine, more than it waits by itself
        breaks_connection=False,
    )


LATER = "Try again in a while."
ANSWERS = [
    _answer(
        400,
        InvalidRequest,
        f" ({{kind 400}}): prompt is too long: 9 tokens > 8 maximum. {CHANGE}",
        calls=NOBODY,
        message="prompt is too long: 9 tokens > 8 maximum",
    ),
    _answer(
        401,
        AuthenticationFailed,
        f" ({{kind 401}}): invalid x-api-key. {KEY}",
        calls=NOBODY,
        message="invalid x-api-key",
    ),
    _answer(
        403,
        AuthenticationFailed,
        f" ({{kind 403}}): Not for your organisation. {KEY}",
        calls=NOBODY,
        message="Not for your organisation",
    ),
    _answer(
        404,
        ModelNotFound,
        " ({kind 404}): model: m. {unknown_model}",
        calls=NOBODY,
        message="model: m",
    ),
    _answer(
        413,
        InvalidRequest,
        f" ({{kind 413}}): Request exceeds the maximum size. {CHANGE}",
        calls=NOBODY,
        message="Request exceeds the maximum size",
    ),
    _answer(
        302,
        ConnectionFailed,
        " and points to http://127.0.0.1:9/login: a redirect is not followed, since the "
        "conversation would go with it. Set {url} to the right address.",
        calls=AGENT,
        body=b"",
        headers={"location": "http://127.0.0.1:9/login"},
    ),
    _limited("429", {}),
    _limited("429 for seconds", {"retry-after": "17"}, (17.0, 17.0)),
    _limited("429 for the longest time", {"retry-after": "60"}, (60.0, 60.0)),
    _limited("429 for milliseconds", {"retry-after-ms": "12500"}, (12.5, 12.5)),
    _limited("429 for garbage", {"retry-after": "soon"}),
    _limited_until_a_date(),
    _limited_for_long("429 for a second too long", "61", "61 s"),
    _limited_for_long("429 for an hour", "3600", "3,600 s"),
    _answer(
        500,
        ServerFailed,
        f" ({{kind 500}}): Internal server error. {LATER}",
        calls=TRANSPORT,
        message="Internal server error",
    ),
    _answer(
        529,
        Overloaded,
        " ({kind 529}): Overloaded. Try again in a while, or use another model.",
        calls=TRANSPORT,
        message="Overloaded",
    ),
    _answer(
        502,
        ServerFailed,
        f": a web page (Bad gateway), which is not an answer of the API. {LATER}",
        calls=TRANSPORT,
        name="502 of a proxy",
        body=b"<html><h1>Bad gateway</h1></html>",
        headers=WEB_PAGE,
    ),
]

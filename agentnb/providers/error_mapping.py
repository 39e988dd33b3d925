"""Maps failures of an API's server to `LlmError`s with a message for the user.

Each message says what happened, quotes the server and says what to do. None holds a key.
"""

from __future__ import annotations

import contextlib
import email.utils
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentnb.core.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    InvalidRequest,
    LlmError,
    ModelNotFound,
    NoCredit,
    Overloaded,
    RateLimited,
    ServerFailed,
    StreamBroken,
)
from agentnb.core.secrets import masked_words
from agentnb.core.text import one_line
from agentnb.providers.forms import Complaint
from agentnb.providers.limits import CUT, BadReply, TooLarge

if TYPE_CHECKING:
    import httpx2


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What a user can do about errors of one API, as parts of sentences."""

    base_url: str
    """The setting for the address."""
    key: str
    """The setting for the key."""
    other_credentials: str = ""
    """Alternatives to a key, beginning with a comma."""
    unreachable: str
    unknown_model: str
    refused: Mapping[str, str] = field(default_factory=dict)
    """Hints for refused requests, by a pattern of the server's message; else a common hint."""


@dataclass(frozen=True, slots=True)
class ErrorMapping:
    """Makes the errors for one server."""

    host: str
    """Host as messages name it: with its port, without a password."""
    timeout_s: float
    """Seconds that the server may be silent."""
    hints: Hints

    def answered(
        self, response: httpx2.Response, *, kind: object, message: object, body: object
    ) -> LlmError:
        """Error for an error response; `kind`, `message` and `body` as the SDK read them."""
        if response.is_redirect:
            return self.redirected(response)
        status = response.status_code
        named = f" ({self.words(kind)})" if kind else ""
        cut = f" ({response.extensions[CUT]})" if CUT in response.extensions else ""
        reason = message if isinstance(message, str) and message else _reason_in(body)
        return self._status_error(
            status,
            f"{self.host} answered {status}{named}{self._why(reason)}{cut}",
            kind=kind,
            status_code=status,
            retry_after_s=_retry_after_s(response.headers),
        )

    def _why(self, said: object) -> str:
        has_words = isinstance(said, str) and said.strip()
        return f": {self.words(said)}" if has_words else " without saying why"

    def redirected(self, response: httpx2.Response) -> ConnectionFailed:
        """Error for a redirect."""
        where = self.words(response.headers.get("location") or "nowhere")
        return ConnectionFailed(
            f"{self.host} answered {response.status_code} and points to {where}: a redirect is "
            f"not followed, since the conversation would go with it. Set {self.hints.base_url} to "
            "the right address.",
            retryable=False,
            status_code=response.status_code,
        )

    def unanswered(self, cause: BaseException) -> ConnectionFailed:
        """Error for a call without a response: no connection, no answer, or no HTTP."""
        import httpx2

        said = self.words(_NOISE.sub("", str(cause)))
        match cause:
            case httpx2.UnsupportedProtocol() | httpx2.InvalidURL():
                return ConnectionFailed(
                    f"The base URL is not a server's address: {said}. Set "
                    f"{self.hints.base_url} to one that begins with `https://` or `http://`, or "
                    "remove it.",
                    retryable=False,
                )
            case httpx2.ReadTimeout() | httpx2.WriteTimeout():
                what = f"did not answer: nothing came for {self.timeout_s:g} s. Try again"
                return ConnectionFailed(f"{self.host} {what} in a while.")
            case httpx2.RemoteProtocolError() if not re.search("disconnected|closed", str(cause)):
                # The HTTP library words this differently in each version.
                return ConnectionFailed(
                    f"{self.host} answered with something that is not HTTP. Check "
                    f"{self.hints.base_url}."
                )
            case httpx2.RemoteProtocolError() | httpx2.ReadError() | httpx2.WriteError():
                what = "closed the connection before it answered. Try again in a while"
                return ConnectionFailed(f"{self.host} {what}, and check the network.")
        return ConnectionFailed(
            f"{self.host} could not be reached{f': {said}' if said else ''}. "
            f"{self.hints.unreachable}."
        )

    def broke_off(self, error: object) -> LlmError:
        """Error for an error event within a reply, which has status 200."""
        kind, code, said = None, None, error
        if isinstance(error, Mapping):
            kind, code, said = error.get("type"), error.get("code"), error.get("message")
        names = [as_words(each) for each in (code, kind)]
        known = [_STATUS_OF_KIND[name] for name in names if name in _STATUS_OF_KIND]
        status = next(iter(known), 500)
        if re.fullmatch("[45][0-9][0-9]", names[0]):  # some servers send the status as text
            status = int(names[0])
        named = f" ({self.words(kind)})" if kind else ""
        what = f"{self.host} broke off its reply{named}{self._why(said)}"
        return self._status_error(status, what, kind=code if code in _NO_CREDIT else kind)

    def broken(
        self, error: Exception | None, response: httpx2.Response, begun: bytes, data: str = ""
    ) -> StreamBroken:
        """Error for a reply that began and did not end.

        Args:
            error: What was raised; `None` for a reply that ended without its end mark.
            response: The response, for its content type.
            begun: The reply's first bytes.
            data: The event that could not be read, if any.
        """
        import httpx2

        kind = response.headers.get("content-type", "no content type")
        if not kind.startswith("text/event-stream"):
            said = self.words(begun.decode(errors="replace"), limit=80)
            return StreamBroken(
                f"{self.host} answered with {self.words(kind)} instead of a stream of "
                f"events{f': {said}' if said else ''}. Check {self.hints.base_url}.",
                retryable=False,
            )
        if isinstance(error, TooLarge):
            return StreamBroken(
                f"{self.host} sent {error}. Ask for less, use another model, or check "
                f"{self.hints.base_url}.",
                retryable=False,
            )
        match error:
            case None:
                what = "ended its reply without the end mark"
            case httpx2.ReadTimeout():
                what = f"was lost within its reply: nothing came for {self.timeout_s:g} s"
            case httpx2.RemoteProtocolError():
                what = "closed the connection within its reply"
            case httpx2.HTTPError():
                what = "was lost within its reply: the connection broke"
            case BadReply():
                what = f"sent an unreadable reply: {self.words(error)}"
                what += f" ({self.words(data, limit=60)})" if data else ""
            case _:
                what = f"sent an unreadable reply: {type(error).__name__}: {self.words(error)}"
        return StreamBroken(f"{self.host} {what}. Try again.")

    def _status_error(self, status: int, what: str, *, kind: object, **fields: Any) -> LlmError:
        raised, hint = self._kind_and_hint(status, what, kind, bool(fields.get("retry_after_s")))
        return raised(f"{what}. {hint}.", **fields)

    def _kind_and_hint(
        self, status: int, what: str, kind: object, has_wait: bool
    ) -> tuple[type[LlmError], str]:
        own = self.hints
        for pattern, hint in own.refused.items():
            if status not in (401, 402, 403, 404, 429) and re.search(pattern, what):
                return InvalidRequest, hint
        match status:
            case 402:
                return NoCredit, _ADD_CREDIT
            case 400 | 403 | 412 | 429 if kind in _NO_CREDIT or _is_of_account(status, what):
                return NoCredit, _ADD_CREDIT
            case 401 | 403:
                return AuthenticationFailed, (
                    f"Set {own.key} to a key that is valid there, and check {own.base_url} if it "
                    "is set; the next run uses them"
                )
            case 400 if kind in _OF_REPLY:
                return ServerFailed, "Try again"
            case 404:
                return ModelNotFound, own.unknown_model
            case 429 if has_wait:
                return RateLimited, "Run fewer agents at a time"
            case 429:
                return RateLimited, "Wait a little, or run fewer agents at a time"
            case 529:
                return Overloaded, "Try again in a while, or use another model"
            case 408 | 409:
                return ServerFailed, "Try again"
            case _ if status >= 500:
                return ServerFailed, "Try again in a while"
        return InvalidRequest, "The same request would be refused again: change what it asks for"

    def words(self, said: object, *, limit: int = 300) -> str:
        """The server's words on one line, without keys and without a full stop."""
        text = _KEY.sub("…", masked_words(as_words(said)))
        if text.lstrip().startswith("<"):
            words = one_line(_TAG.sub(" ", text), limit=80)
            return f"a web page ({words}), which is not an answer of the API"
        return one_line(text, limit=limit).removesuffix(".")


def _is_of_account(status: int, what: str) -> bool:
    said = Complaint(status, what).sentences  # without what they repeat of the request
    return any(
        _OF_ACCOUNT.search(each) or (status == 429 and _NO_BALANCE.search(each)) for each in said
    )


def as_words(said: object) -> str:
    """`str(said)`, for data of any shape from a server."""
    try:
        return str(said)
    except (RecursionError, ValueError):  # Python parses slightly deeper JSON than it writes
        return "lists or objects, nested too deeply"


def _reason_in(body: object) -> object:
    """The message in an error's body, for any kind of server."""
    if isinstance(body, list) and body and isinstance(body[0], Mapping):  # of Gemini's bridge
        return _reason_in(body[0].get("error", body[0]))
    if not isinstance(body, Mapping):
        return body
    for name in ("message", "error", "detail"):
        if isinstance(body.get(name), str):
            return body[name]
    match body.get("detail"):
        case [{"msg": str(first), "loc": list(place)}, *_]:  # FastAPI's form for a bad field
            return f"{'.'.join(map(as_words, place))}: {first}"
    return next(iter(Complaint(0, body).sentences), body)


_KEY = re.compile(r"\bsk-ant-[\w-]+|(?<![\w-])sk-[\w*-]{12,}")
"""Matches anything that looks like a key, ours or not."""

_TAG = re.compile(r"<[^<>]*>")
"""Never across another `<`: matching unclosed tags would take quadratic time."""

_NOISE = re.compile(r"^\[[^]]*\] *|\(_ssl\.c:\d+\)$|bytearray\(b['\"]|['\"]\)$")
"""What Python adds to the message of a failed connection."""

_STATUS_OF_KIND = {
    # Messages API.
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
    # OpenAI and compatible servers.
    "context_length_exceeded": 400,
    "invalid_api_key": 401,
    "model_not_found": 404,
    "insufficient_quota": 429,
    "exceeded_current_quota_error": 429,
    "1113": 429,  # Zhipu's, of an account
    "rate_limit_exceeded": 429,
    "exceed_context_size_error": 400,
    "unavailable_error": 503,
    "BadRequestError": 400,
    "NotFoundError": 404,
}
_NO_CREDIT = ("insufficient_quota", "exceeded_current_quota_error")
"""Kinds of a 429 for which waiting does not help: of OpenAI and Moonshot."""
_OF_ACCOUNT = re.compile(
    r"(?i)credit balance is too low|reached your specified .*usage limits|\baccount is in arrears"
    r"|make sure your account is in good standing|used all available credits|overdue account"
    r"|have any credits|monthly spending limit|insufficient_user_quota|billing hard limit"
    r"|account balance is insufficient|\bAccountOverdue|account is not active"
)
"""What the APIs of Anthropic, Alibaba, xAI, Fireworks, OpenAI and others say of an account."""
_NO_BALANCE = re.compile("(?i)insufficient balance|余额不足|欠费")
"""What Zhipu says of one with status 429: it may stand in a text that is refused."""
_ADD_CREDIT = "Add credit to the account, or use another model"
_OF_REPLY = ("tool_use_failed",)
"""Kinds of a 400 that is about what the model wrote, not about the request: of Groq."""
_LONGEST_WAIT = 100
"""Most characters that are read of a `retry-after` header."""


def unsendable_key(hints: Hints) -> AuthenticationFailed:
    """Error for a key that a header cannot hold."""
    return AuthenticationFailed(
        f"The key holds characters that cannot be sent. Set {hints.key} again, without spaces "
        "and line breaks."
    )


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The wait that a response asks for, given in milliseconds, in seconds or as a date."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with contextlib.suppress(ValueError):
            wait_s = float(headers.get(name, "")[:_LONGEST_WAIT]) * unit_s
            if math.isfinite(wait_s):
                return max(0.0, wait_s)
    date = email.utils.parsedate_tz(headers.get("retry-after", "")[:_LONGEST_WAIT])
    with contextlib.suppress(OverflowError, ValueError):  # a year out of range
        return max(0.0, email.utils.mktime_tz(date) - time.time()) if date else None
    return None

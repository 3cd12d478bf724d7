"""Why there is no response, or no whole one."""

import builtins
import json
from typing import Any

from ._towpath import Failure


class Error(Exception):
    """Any failure of a request. `kind` is a word that stays the same from version to version."""

    kind = "engine"
    _report: str | None = None

    @property
    def report(self) -> dict[str, Any] | None:
        """What happened to the request, where one was made: the keys are those of `Response.report`."""
        return None if self._report is None else dict(json.loads(self._report))


class CallerError(Error, ValueError):
    """The caller's mistake: a URL, a method, a field, or the length of a body."""


class ConnectError(Error, builtins.ConnectionError):
    """No connection could be made."""


class ResolveError(ConnectError):
    """The name has no addresses, or its server could not be asked."""


class OfflineError(ConnectError):
    """The platform says that there is no network."""


class TlsError(ConnectError):
    """The TLS handshake failed, or TLS cannot be set up as asked."""


class ProxyError(ConnectError):
    """The proxy refused, or did not do what it was asked for."""


class Timeout(Error, builtins.TimeoutError):
    """A limit on time passed: `kind` says what was waited for."""


class ConnectTimeout(Timeout, ConnectError):
    """No connection was made in time."""


class DisconnectedError(Error, builtins.ConnectionError):
    """The connection ended before the response was whole."""


class ProtocolError(Error):
    """What came was not HTTP, or not WebSocket."""


class RedirectError(Error):
    """The server sent the request from place to place."""


class DecodingError(Error):
    """The response's body is not in the coding that it says."""


class TooLargeError(Error):
    """The response's body is larger than the caller takes."""


class LimitError(Error):
    """A limit of this side: requests under way, or what an app has set on itself."""


class BackOffError(LimitError):
    """The server answered 429 or 503 lately, and named a time that is not over."""


class CancelledError(Error):
    """The request was given up by this side."""


class EngineError(Error):
    """The engine could not be started, was closed, or is of another process."""


class StatusError(Error):
    """What `raise_for_status` raises, and a WebSocket whose server does not switch."""

    kind = "status"
    status: int | None = None
    """What the server answered."""


class ClosedError(DisconnectedError):
    """The WebSocket is closed."""

    kind = "closed"
    code: int = 1006
    """The server's code (RFC 6455 §7.4): 1005 where it gave none, 1006 before it has closed."""
    reason: str = ""
    """Its words."""


_CLASSES: dict[str, type[Error]] = {
    "url": CallerError,
    "token": CallerError,
    "upload": CallerError,
    "proxy settings": CallerError,
    "resolve": ResolveError,
    "connect": ConnectError,
    "offline": OfflineError,
    "proxy": ProxyError,
    "tls": TlsError,
    "tls settings": TlsError,
    "connect timeout": ConnectTimeout,
    "read timeout": Timeout,
    "write timeout": Timeout,
    "total timeout": Timeout,
    "disconnected": DisconnectedError,
    "protocol": ProtocolError,
    "websocket": ProtocolError,
    "status": StatusError,
    "closed": ClosedError,
    "redirect": RedirectError,
    "decoding": DecodingError,
    "too large": TooLargeError,
    "overflow": LimitError,
    "limited": LimitError,
    "back-off": BackOffError,
    "cancelled": CancelledError,
    "stopped": EngineError,
    "engine": EngineError,
}


def error(failure: Failure) -> Error:
    """The error that a failure of the native half is."""
    kind, text, report, status = failure.args
    made = _CLASSES[kind](text)
    if isinstance(made, StatusError):
        made.status = status
    made.kind = kind
    made._report = report
    return made

"""HTTP for apps on networks that lose, stall and change.

One engine carries all requests of a client on a thread of its own, outside of Python: it races connections, repeats
what may be repeated, resumes responses that break off, and keeps limits on time for each layer.

    import towpath

    with towpath.Client() as client:
        print(client.get("https://example.org/").text)

`Client` blocks, `AsyncClient` is for asyncio and Trio. `HttpxClient` and `HttpxAsyncClient` are httpx's clients with an
engine below, `Transport` and `AsyncTransport` are for clients of httpx itself, `Adapter` is for requests.
"""

from typing import TYPE_CHECKING, Any

from ._client import AsyncClient, AsyncResponse, Client, Response
from ._engine import Engine
from ._errors import (
    BackOffError,
    CallerError,
    CancelledError,
    ClosedError,
    ConnectError,
    ConnectTimeout,
    DecodingError,
    DisconnectedError,
    EngineError,
    Error,
    LimitError,
    OfflineError,
    ProtocolError,
    ProxyError,
    RedirectError,
    ResolveError,
    StatusError,
    Timeout,
    TlsError,
    TooLargeError,
)
from ._headers import Headers
from ._websocket import AsyncLastingWebSocket, AsyncWebSocket, LastingWebSocket, WebSocket

if TYPE_CHECKING:
    from ._httpx import AsyncTransport, HttpxAsyncClient, HttpxClient, Transport
    from ._requests import Adapter

__all__ = [
    "Adapter",
    "AsyncClient",
    "AsyncLastingWebSocket",
    "AsyncResponse",
    "AsyncTransport",
    "AsyncWebSocket",
    "BackOffError",
    "CallerError",
    "CancelledError",
    "Client",
    "ClosedError",
    "ConnectError",
    "ConnectTimeout",
    "DecodingError",
    "DisconnectedError",
    "Engine",
    "EngineError",
    "Error",
    "Headers",
    "HttpxAsyncClient",
    "HttpxClient",
    "LastingWebSocket",
    "LimitError",
    "OfflineError",
    "ProtocolError",
    "ProxyError",
    "RedirectError",
    "ResolveError",
    "Response",
    "StatusError",
    "Timeout",
    "TlsError",
    "TooLargeError",
    "Transport",
    "WebSocket",
]


def __getattr__(name: str) -> Any:
    # httpx and requests are read when they are wanted: neither is needed otherwise.
    if name in ("Transport", "AsyncTransport", "HttpxClient", "HttpxAsyncClient"):
        from . import _httpx

        return getattr(_httpx, name)
    if name == "Adapter":
        from ._requests import Adapter

        return Adapter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

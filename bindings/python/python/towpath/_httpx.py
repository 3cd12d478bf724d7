"""Transports and clients for httpx."""

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote

import httpx

from . import _errors, _limits, _towpath
from ._engine import Engine, Path
from ._exchange import AsyncExchange, Exchange, Head

_CLASSES: dict[str, type[httpx.RequestError]] = {
    "url": httpx.UnsupportedProtocol,
    "token": httpx.LocalProtocolError,
    "upload": httpx.LocalProtocolError,
    "resolve": httpx.ConnectError,
    "connect": httpx.ConnectError,
    "offline": httpx.ConnectError,
    "proxy": httpx.ProxyError,
    "proxy settings": httpx.ProxyError,
    "tls": httpx.ConnectError,
    "tls settings": httpx.ConnectError,
    "connect timeout": httpx.ConnectTimeout,
    "read timeout": httpx.ReadTimeout,
    "write timeout": httpx.WriteTimeout,
    "total timeout": httpx.ReadTimeout,
    "disconnected": httpx.RemoteProtocolError,
    "protocol": httpx.RemoteProtocolError,
    "overflow": httpx.PoolTimeout,
    "cancelled": httpx.ReadError,
}


class _Base:
    def __init__(
        self,
        *,
        engine: Engine | None = None,
        verify: bool | Path | bytes | ssl.SSLContext = True,
        cert: Path | tuple[Path, Path] | None = None,
        retries: int | None = None,
        limits: httpx.Limits | None = None,
        http_versions: str = "negotiated",
        proxy: str | httpx.URL | httpx.Proxy | None = None,
        **settings: Any,
    ) -> None:
        """- `engine`: one that is shared; without it the transport has its own, and ends it when it is closed.
        - `verify`, `cert` and `settings`: those of `Engine`.
        - `retries`: how often a request is repeated where that is allowed: 2.
        - `limits`: httpx's. `max_connections` is how many requests may be under way, to all origins together
          (`max_calls_under_way`): more wait in order, within the timeout for pool; `max_keepalive_connections` and
          `keepalive_expiry` are the engine's `max_idle` and `idle_timeout`. To each origin by itself:
          `max_calls_per_origin`.
        - `http_versions`: "negotiated", "http1" or "http2". `proxy`: one before all places, as httpx takes it, but for
          an `ssl_context` of its own; "environment" for those of the environment by curl's rules.
        """
        if limits is not None:
            settings = {**_settings(limits), **settings}
        if engine is not None and (verify is not True or cert is not None or settings):
            raise ValueError("verify, cert and settings are those of an engine of its own")
        self._retries = retries
        self._http_versions = http_versions
        self._proxy = _limits.proxies(_proxy(proxy))
        self._owns = engine is None
        self.engine = engine if engine is not None else Engine(verify=verify, cert=cert, **settings)

    def _options(self, request: httpx.Request) -> _towpath.Options:
        limits = request.extensions.get("timeout") or {}
        priority = request.extensions.get("towpath_priority", "normal")
        return _limits.options(
            limits.get("connect"),
            limits.get("read"),
            self._retries,
            priority,
            limits.get("pool"),
            self._http_versions,
            self._proxy,
        )

    def _close(self) -> None:
        if self._owns:
            self.engine.close()


def _settings(limits: httpx.Limits) -> dict[str, Any]:
    named = {
        "max_calls_under_way": limits.max_connections,
        # So many may have a connection each.
        "max_connections": limits.max_connections,
        "max_idle": limits.max_keepalive_connections,
        "idle_timeout": limits.keepalive_expiry,
    }
    return {name: value for name, value in named.items() if value is not None}


def _proxy(proxy: str | httpx.URL | httpx.Proxy | None) -> str | None:
    """A proxy as the engine takes it."""
    if proxy is None or isinstance(proxy, str):
        return proxy
    if isinstance(proxy, httpx.URL):
        return str(proxy) if not proxy.userinfo else _proxy(httpx.Proxy(proxy))
    if proxy.headers or proxy.ssl_context is not None:
        raise ValueError("of a proxy its URL and credentials are honoured, and no headers or ssl_context of its own")
    who = "" if proxy.auth is None else ":".join(quote(word, safe="") for word in proxy.auth) + "@"
    return f"{proxy.url.scheme}://{who}{proxy.url.netloc.decode('ascii')}"


class Transport(_Base, httpx.BaseTransport):
    """`httpx.Client(transport=towpath.Transport())`."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url, method, options = _url(request.url), request.method, self._options(request)
        stream = request.stream
        if isinstance(stream, httpx.ByteStream):
            body: bytes | Iterable[bytes] | None = b"".join(stream)
        elif isinstance(stream, Iterable):
            body = stream
        else:
            raise RuntimeError("a request with an asynchronous body was given to a blocking client")
        try:
            native = self.engine.native()
            exchange = Exchange(native, method, url, request.headers.raw, options, body, _length(request))
            head = exchange.head()
        except (_errors.Error, _towpath.Failure) as failure:
            _raise(failure, request)
        return _response(head, _Stream(exchange, request), exchange.native)

    def close(self) -> None:
        self._close()


class AsyncTransport(_Base, httpx.AsyncBaseTransport):
    """`httpx.AsyncClient(transport=towpath.AsyncTransport())`, for asyncio and Trio."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url, method, options = _url(request.url), request.method, self._options(request)
        stream = request.stream
        if isinstance(stream, httpx.ByteStream):
            body: bytes | AsyncIterable[bytes] | None = b"".join(stream)
        elif isinstance(stream, AsyncIterable):
            body = stream
        else:
            raise RuntimeError("a request with a blocking body was given to an asynchronous client")
        try:
            native = self.engine.native()
            # httpx's own generator leaves the app's to the collector.
            below = getattr(stream, "_stream", None)
            fields, length = request.headers.raw, _length(request)
            exchange = AsyncExchange(native, method, url, fields, options, body, length, below)
            head = await exchange.head()
        except (_errors.Error, _towpath.Failure) as failure:
            _raise(failure, request)
        return _response(head, _AsyncStream(exchange, request), exchange.native)

    async def aclose(self) -> None:
        self._close()


T = TypeVar("T", Transport, AsyncTransport)


def _transport(
    kind: type[T],
    options: dict[str, Any],
    *,
    engine: Engine | None = None,
    verify: Any = True,
    cert: Any = None,
    http1: bool = True,
    http2: bool = True,
    limits: httpx.Limits | None = None,
    proxy: str | httpx.URL | httpx.Proxy | None = None,
    retries: int | None = None,
) -> T:
    """The transport for what httpx's own would be made with."""
    if options.get("transport") is not None:
        raise ValueError("the transport is the engine's: httpx.Client takes others")
    if not (http1 or http2):
        raise ValueError("one of http1 and http2 must be left")
    versions = "negotiated" if http1 and http2 else "http1" if http1 else "http2"
    if proxy is None and options.get("trust_env", True):
        proxy = "environment"
    return kind(
        engine=engine, verify=verify, cert=cert, limits=limits, http_versions=versions, proxy=proxy, retries=retries
    )


_OURS = ("engine", "verify", "cert", "http1", "http2", "limits", "proxy", "retries")


class HttpxClient(httpx.Client):
    """httpx's client, whose requests go by an engine. What `httpx.Client` passes over once it has a transport is
    honoured here: `verify`, `cert`, `http1`, `http2` (True: a server may choose it), `limits`, `proxy`, and
    `trust_env` as far as it is about proxies; `verify=False`, `transport` and what a proxy has of its own but
    credentials are refused. It takes `engine` and `retries` as `Transport` does; without `limits` the engine's hold.
    `mounts` are httpx's own.
    """

    def __init__(self, **options: Any) -> None:
        ours = {name: options.pop(name) for name in _OURS if name in options}
        super().__init__(**{**options, "transport": _transport(Transport, options, **ours)})


class HttpxAsyncClient(httpx.AsyncClient):
    """As `HttpxClient`, for asyncio and Trio."""

    def __init__(self, **options: Any) -> None:
        ours = {name: options.pop(name) for name in _OURS if name in options}
        super().__init__(**{**options, "transport": _transport(AsyncTransport, options, **ours)})


class _Stream(httpx.SyncByteStream):
    def __init__(self, exchange: Exchange, request: httpx.Request) -> None:
        self._exchange, self._request = exchange, request

    def __iter__(self) -> Iterator[bytes]:
        try:
            while (chunk := self._exchange.chunk()) is not None:
                yield chunk
        except _towpath.Failure as failure:
            _raise(failure, self._request)

    def close(self) -> None:
        self._exchange.native.cancel()


class _AsyncStream(httpx.AsyncByteStream):
    def __init__(self, exchange: AsyncExchange, request: httpx.Request) -> None:
        self._exchange, self._request = exchange, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while (chunk := await self._exchange.chunk()) is not None:
                yield chunk
        except _towpath.Failure as failure:
            _raise(failure, self._request)

    async def aclose(self) -> None:
        await self._exchange.aclose()


def _response(
    head: Head, stream: httpx.SyncByteStream | httpx.AsyncByteStream, native: _towpath.Exchange
) -> httpx.Response:
    status, fields, _ = head
    # `towpath` has the report and the timeline, once the body was read.
    extensions = {"http_version": native.version().encode(), "towpath": native}
    return httpx.Response(status, headers=fields, stream=stream, extensions=extensions)


def _url(url: httpx.URL) -> str:
    # Without credentials: httpx has made a field of that.
    return f"{url.scheme}://{url.netloc.decode('ascii')}{url.raw_path.decode('ascii')}"


def _length(request: httpx.Request) -> int | None:
    length = request.headers.get("content-length")
    return None if length is None else int(length)


def _raise(failure: _errors.Error | _towpath.Failure, request: httpx.Request) -> NoReturn:
    """Raises httpx's error, whose cause is this library's, with its report."""
    ours = _errors.error(failure) if isinstance(failure, _towpath.Failure) else failure
    raise _CLASSES.get(ours.kind, httpx.TransportError)(str(ours), request=request) from ours

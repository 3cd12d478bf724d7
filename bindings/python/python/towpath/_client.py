"""The library's own clients: blocking, and for asyncio and Trio."""

import json as _json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import lru_cache
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote_plus, urlencode, urlsplit, urlunsplit

from . import _errors, _limits, _towpath, _websocket
from ._engine import Engine
from ._exchange import AsyncExchange, Exchange, Fields
from ._headers import Headers

HeaderTypes = Mapping[str, str] | Iterable[tuple[str, str]]
ParamTypes = Mapping[str, Any] | Iterable[tuple[str, Any]]

T = TypeVar("T")

# The largest body that is read at once, in bytes.
LARGEST_BYTES = 1 << 30


class _BaseResponse:
    """What is known of a response before its body."""

    def __init__(self, exchange: Exchange | AsyncExchange, url: str, head: Any) -> None:
        status, fields, redirects = head
        self.status: int = status
        """The status: 200 to 599."""
        self.headers = Headers(fields)
        """The fields."""
        self.redirects: list[tuple[int, str]] = redirects
        """The answers that were followed: status, and where it led to."""
        self.url: str = redirects[-1][1] if redirects else url
        """Where it came from."""
        self._native = exchange.native
        self._content: bytes | None = None

    @property
    def http_version(self) -> str:
        """What the server spoke: "HTTP/1.1", "HTTP/2"."""
        return self._native.version()

    @property
    def content(self) -> bytes:
        """The body, if it was read."""
        if self._content is None:
            raise RuntimeError("the body was not read: call read() first")
        return self._content

    @property
    def text(self) -> str:
        """The body as text: in the charset of its content-type, or UTF-8; what is not in it is replaced."""
        return self.content.decode(_charset(self.headers.get("content-type", "")), "replace")

    def json(self) -> Any:
        """The body as JSON."""
        return _json.loads(self.content)

    def raise_for_status(self) -> None:
        """Raises `StatusError` if the status is 400 or above."""
        if self.status >= 400:
            error = _errors.StatusError(f"{self.url} answered {self.status}")
            error.status = self.status
            raise error

    @property
    def trailers(self) -> Headers:
        """The fields after the body, once it was read."""
        return Headers(self._native.trailers())

    @property
    def report(self) -> dict[str, Any] | None:
        """What happened to the request, once its body was read: attempts, tries, times in ms."""
        report = self._native.report()
        return None if report is None else dict(_json.loads(report))

    @property
    def timeline(self) -> list[tuple[float, str]]:
        """What happened to the request in words, once its body was read: seconds since it began, and what."""
        return self._native.timeline()

    def close(self) -> None:
        """Gives the request up, unless it has ended."""
        self._native.cancel()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.status} {self.url}>"


class Response(_BaseResponse):
    """A response; iterating over it gives its body in pieces."""

    def __init__(self, exchange: Exchange, url: str) -> None:
        super().__init__(exchange, url, _call(exchange.head))
        self._exchange = exchange

    def __iter__(self) -> Iterator[bytes]:
        while (chunk := _call(self._exchange.chunk)) is not None:
            yield chunk

    def read(self, limit: int = LARGEST_BYTES) -> bytes:
        """All of the body; more than `limit` bytes are an error."""
        if self._content is None:
            pieces: list[bytes] = []
            size = 0
            for chunk in self:
                size += len(chunk)
                if size > limit:
                    self.close()
                    raise _errors.TooLargeError(f"the response is larger than {limit} bytes")
                pieces.append(chunk)
            self._content = b"".join(pieces)
        return self._content


class AsyncResponse(_BaseResponse):
    """A response; asynchronous iteration gives its body in pieces."""

    def __init__(self, exchange: AsyncExchange, url: str, head: Any) -> None:
        super().__init__(exchange, url, head)
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            try:
                chunk = await self._exchange.chunk()
            except _towpath.Failure as failure:
                raise _errors.error(failure) from None
            if chunk is None:
                return
            yield chunk

    async def read(self, limit: int = LARGEST_BYTES) -> bytes:
        """All of the body; more than `limit` bytes are an error."""
        if self._content is None:
            pieces: list[bytes] = []
            size = 0
            async for chunk in self:
                size += len(chunk)
                if size > limit:
                    await self.aclose()
                    raise _errors.TooLargeError(f"the response is larger than {limit} bytes")
                pieces.append(chunk)
            self._content = b"".join(pieces)
        return self._content

    async def aclose(self) -> None:
        """Gives the request up, unless it has ended, and closes the generator that makes its body."""
        await self._exchange.aclose()


class _BaseClient:
    """- `headers`: sent with every request. `redirects`: how many are followed. `decode`: whether compressed bodies
      are asked for and decoded. `timeout`: s for everything, redirects and repetitions included; None for no limit but
      those of the engine. `proxy`: the URL of one before all places; "environment" for those of the environment, by
      curl's rules; None for none.
    - `engine`: one that is shared; without it the client has its own, and `settings` are those of `Engine`.
    """

    def __init__(
        self,
        *,
        engine: Engine | None = None,
        headers: HeaderTypes = (),
        timeout: float | None = None,
        redirects: int = 20,
        decode: bool = True,
        proxy: str | None = None,
        **settings: Any,
    ) -> None:
        if engine is not None and settings:
            raise ValueError("settings are those of an engine of its own")
        self._owns = engine is None
        self.engine = engine if engine is not None else Engine(**settings)
        self._headers = _pairs(headers)
        self._defaults: dict[str, Any] = {
            "total": timeout,
            "redirects": redirects,
            "decode": decode,
            "proxy": _limits.proxies(proxy),
        }

    def _prepared(
        self,
        url: str,
        params: ParamTypes | None,
        headers: HeaderTypes,
        content: Any,
        data: ParamTypes | None,
        json: Any,
        options: dict[str, Any],
    ) -> tuple[str, Fields, Any, int | None, _towpath.Options]:
        fields = self._headers + _pairs(headers)
        body, kind = _body(content, data, json)
        names = {name.lower() for name, _ in fields}
        if kind is not None and "content-type" not in names:
            fields.append(("content-type", kind))
        if "proxy" in options:
            options["proxy"] = _limits.proxies(options["proxy"])
        if "timeout" in options:
            options["total"] = options.pop("timeout")
        given = tuple(sorted({**self._defaults, **options}.items()))
        return _with_params(url, params), fields, body, _length(fields), _options(given)

    def _address(
        self, url: str, params: ParamTypes | None = None, headers: HeaderTypes = (), **how: Any
    ) -> _websocket.Address:
        wishes = {name: how.pop(name) for name in _websocket.Wishes._fields if name in how}
        url, fields, _, _, options = self._prepared(url, params, headers, None, None, None, how)
        return _websocket.Address(self.engine.native(), url, fields, options, _websocket.wishes(**wishes))


class Client(_BaseClient):
    """Makes requests, and waits for them; any thread may use it.

    `request` and its short forms take `params` (the query), `headers`, and one of `content` (bytes, text, or an
    iterable of bytes), `data` (a form) and `json`; and as options `timeout` (s for everything), `answer`,
    `first_byte`, `gap` (s, limits of one layer), `turn_timeout` (s, the wait for others: `max_calls_per_origin`,
    `max_calls_under_way`), `proxy`, `retries`, `repeat` ("by-method", "always", "never"), `redirects`,
    `redirects_to_http`, `decode`, `resume`, `hedge`, `wait_for_network`, `fail_at_rest`, `unlimited`, `priority`
    ("high", "normal", "low"), `http_versions` ("negotiated": HTTP/2 where a server chooses it under TLS; "http1";
    "http2").
    """

    def request(self, method: str, url: str, **how: Any) -> Response:
        """Makes a request, and reads its response as a whole."""
        response = self._send(method, url, **how)
        response.read()
        return response

    @contextmanager
    def stream(self, method: str, url: str, **how: Any) -> Iterator[Response]:
        """Makes a request whose response is read in pieces, and given up at the end of the block if there is more of
        it."""
        response = self._send(method, url, **how)
        try:
            yield response
        finally:
            response.close()

    def get(self, url: str, **how: Any) -> Response:
        return self.request("GET", url, **how)

    def head(self, url: str, **how: Any) -> Response:
        return self.request("HEAD", url, **how)

    def post(self, url: str, **how: Any) -> Response:
        return self.request("POST", url, **how)

    def put(self, url: str, **how: Any) -> Response:
        return self.request("PUT", url, **how)

    def patch(self, url: str, **how: Any) -> Response:
        return self.request("PATCH", url, **how)

    def delete(self, url: str, **how: Any) -> Response:
        return self.request("DELETE", url, **how)

    def _send(
        self,
        method: str,
        url: str,
        *,
        params: ParamTypes | None = None,
        headers: HeaderTypes = (),
        content: bytes | str | Iterable[bytes] | None = None,
        data: ParamTypes | None = None,
        json: Any = None,
        **options: Any,
    ) -> Response:
        url, fields, body, length, how = self._prepared(url, params, headers, content, data, json, options)
        engine = self.engine.native()
        return Response(_call(lambda: Exchange(engine, method, url, fields, how, body, length)), url)

    def websocket(self, url: str, **how: Any) -> _websocket.WebSocket:
        """Opens a WebSocket: `ws` or `wss`. Of a request it takes `params`, `headers` and the options, `timeout` until
        it is open; and `subprotocols`, `compression` (True), `max_message_bytes` (16 MiB), and in s `ping_interval`
        (30; 0 for never), `pong_timeout` (10), `close_timeout` (10)."""
        return _websocket.open_blocking(self._address(url, **how))

    def lasting_websocket(self, url: str, **how: Any) -> _websocket.LastingWebSocket:
        """One that is opened again whenever it breaks: iterating over it gives each. Takes what `websocket` does."""
        return _websocket.LastingWebSocket(self._address(url, **how))

    def close(self) -> None:
        """Closes the engine, if it is the client's own: what is under way goes on."""
        if self._owns:
            self.engine.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_BaseClient):
    """As `Client`, for asyncio and Trio: a task that is cancelled gives its request up."""

    async def request(self, method: str, url: str, **how: Any) -> AsyncResponse:
        """Makes a request, and reads its response as a whole."""
        response = await self._send(method, url, **how)
        try:
            await response.read()
        finally:
            await response.aclose()
        return response

    @asynccontextmanager
    async def stream(self, method: str, url: str, **how: Any) -> AsyncIterator[AsyncResponse]:
        """Makes a request whose response is read in pieces, and given up at the end of the block if there is more of
        it."""
        response = await self._send(method, url, **how)
        try:
            yield response
        finally:
            await response.aclose()

    async def get(self, url: str, **how: Any) -> AsyncResponse:
        return await self.request("GET", url, **how)

    async def head(self, url: str, **how: Any) -> AsyncResponse:
        return await self.request("HEAD", url, **how)

    async def post(self, url: str, **how: Any) -> AsyncResponse:
        return await self.request("POST", url, **how)

    async def put(self, url: str, **how: Any) -> AsyncResponse:
        return await self.request("PUT", url, **how)

    async def patch(self, url: str, **how: Any) -> AsyncResponse:
        return await self.request("PATCH", url, **how)

    async def delete(self, url: str, **how: Any) -> AsyncResponse:
        return await self.request("DELETE", url, **how)

    async def _send(
        self,
        method: str,
        url: str,
        *,
        params: ParamTypes | None = None,
        headers: HeaderTypes = (),
        content: bytes | str | AsyncIterable[bytes] | Iterable[bytes] | None = None,
        data: ParamTypes | None = None,
        json: Any = None,
        **options: Any,
    ) -> AsyncResponse:
        url, fields, body, length, how = self._prepared(url, params, headers, content, data, json, options)
        if body is not None and not isinstance(body, (bytes, AsyncIterable)):
            body = _in_turns(body)
        try:
            exchange = AsyncExchange(self.engine.native(), method, url, fields, how, body, length)
            return AsyncResponse(exchange, url, await exchange.head())
        except _towpath.Failure as failure:
            raise _errors.error(failure) from None

    def websocket(self, url: str, **how: Any) -> _websocket.Opening:
        """Opens a WebSocket, as `Client.websocket` does: by `async with`, or awaited."""
        return _websocket.Opening(self._address(url, **how))

    def lasting_websocket(self, url: str, **how: Any) -> _websocket.AsyncLastingWebSocket:
        """One that is opened again whenever it breaks, by `async for`."""
        return _websocket.AsyncLastingWebSocket(self._address(url, **how))

    async def aclose(self) -> None:
        """Closes the engine, if it is the client's own: what is under way goes on."""
        if self._owns:
            self.engine.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _call(act: Callable[[], T]) -> T:
    try:
        return act()
    except _towpath.Failure as failure:
        raise _errors.error(failure) from None


@lru_cache(maxsize=256)
def _options(given: tuple[tuple[str, Any], ...]) -> _towpath.Options:
    return _towpath.Options(**dict(given))


def _pairs(headers: HeaderTypes) -> list[tuple[str, str]]:
    return list(headers.items() if isinstance(headers, Mapping) else headers)


def _body(content: Any, data: ParamTypes | None, json: Any) -> tuple[Any, str | None]:
    """The body, and what it is."""
    if sum(given is not None for given in (content, data, json)) > 1:
        raise ValueError("a request has one of content, data and json")
    if json is not None:
        return _json.dumps(json, separators=(",", ":"), ensure_ascii=False).encode(), "application/json"
    if data is not None:
        pairs = list(data.items()) if isinstance(data, Mapping) else list(data)
        return urlencode(pairs, doseq=True).encode(), "application/x-www-form-urlencoded"
    if isinstance(content, str):
        return content.encode(), "text/plain; charset=utf-8"
    if isinstance(content, (bytearray, memoryview)):
        return bytes(content), None
    return content, None


def _with_params(url: str, params: ParamTypes | None) -> str:
    if not params:
        return url
    parts = urlsplit(url)
    pairs = list(params.items()) if isinstance(params, Mapping) else list(params)
    query = urlencode(pairs, doseq=True, quote_via=quote_plus)
    return urlunsplit(parts._replace(query=f"{parts.query}&{query}" if parts.query else query))


def _length(fields: Iterable[tuple[Any, Any]]) -> int | None:
    """The length that the caller promises of a body that follows in pieces."""
    for name, value in fields:
        if name.lower() in ("content-length", b"content-length"):
            return int(value)
    return None


def _charset(content_type: str) -> str:
    for part in content_type.split(";")[1:]:
        name, _, value = part.strip().partition("=")
        if name.lower() == "charset":
            try:
                "".encode(value.strip('"'))
            except LookupError:
                break
            return value.strip('"')
    return "utf-8"


async def _in_turns(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece

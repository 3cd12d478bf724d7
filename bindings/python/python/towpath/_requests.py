"""An adapter for requests."""

import http.client
import os
import threading
from collections.abc import Generator, Iterator, Mapping
from functools import lru_cache
from typing import Any, NoReturn
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.utils import prepend_scheme_if_needed, select_proxy

from . import _errors, _limits, _towpath
from ._engine import Engine
from ._exchange import Exchange, Head

_CLASSES: dict[str, type[requests.RequestException]] = {
    "url": requests.exceptions.InvalidURL,
    "token": requests.exceptions.InvalidHeader,
    "upload": requests.RequestException,
    "proxy": requests.exceptions.ProxyError,
    "proxy settings": requests.exceptions.InvalidProxyURL,
    "resolve": requests.ConnectionError,
    "connect": requests.ConnectionError,
    "offline": requests.ConnectionError,
    "tls": requests.exceptions.SSLError,
    "tls settings": requests.exceptions.SSLError,
    "connect timeout": requests.ConnectTimeout,
    "read timeout": requests.ReadTimeout,
    "write timeout": requests.ConnectionError,
    "total timeout": requests.ReadTimeout,
    "disconnected": requests.ConnectionError,
    "protocol": requests.ConnectionError,
}


class Adapter(HTTPAdapter):
    """`session.mount("https://", towpath.Adapter())`, and the same for `http://`.

    - `engine`: one that is shared. Without it the adapter has its own, one for each pair of `verify` and `cert` that
      it is asked with, and ends them when it is closed.
    - `retries`: how often a request is repeated where that is allowed: 2. `settings`: those of `Engine`.
    """

    __attrs__ = [*HTTPAdapter.__attrs__, "_settings", "_retries"]

    def __init__(self, *, engine: Engine | None = None, retries: int | None = None, **settings: Any) -> None:
        super().__init__()
        if engine is not None and settings:
            raise ValueError("settings are those of an engine of its own")
        self._settings = settings
        self._retries = retries
        self._set_up(engine)

    def _set_up(self, engine: Engine | None) -> None:
        self._shared = engine
        self._engines: dict[Any, Engine] = {}
        self._adding = threading.Lock()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._set_up(None)

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        url = request.url or ""
        proxy = select_proxy(url, dict(proxies or {}))
        self.add_headers(request, stream=stream, timeout=timeout, verify=verify, cert=cert, proxies=proxies)
        try:
            through = None if proxy is None else _proxies(prepend_scheme_if_needed(proxy, "http"))
            options = _limits.options(*_pair(timeout), self._retries, proxy=through)
            engine = self._engine(url, verify, cert).native()
            body, length = _body(request)
            fields = list(request.headers.items())
            method = request.method or "GET"
            exchange = Exchange(engine, method, _url(url), fields, options, body, length)
            head = exchange.head()
        except (_errors.Error, _towpath.Failure) as failure:
            _raise(failure, request, proxy)
        # requests' own types are stricter than what it does.
        raw: Any = _Raw(exchange, request, head)
        return self.build_response(request, raw)

    def _engine(self, url: str, verify: Any, cert: Any) -> Engine:
        if self._shared is not None:
            return self._shared
        key = (verify, cert) if url[:6].lower() == "https:" else (True, None)
        if not key[0]:
            raise requests.exceptions.SSLError("certificates are always checked: verify=False is not supported")
        engine = self._engines.get(key)
        if engine is None:
            with self._adding:
                engine = self._engines.get(key) or _engine(key, self._settings)
                self._engines[key] = engine
        return engine

    def close(self) -> None:
        super().close()
        engines, self._engines = list(self._engines.values()), {}
        for engine in engines:
            engine.close()


@lru_cache(maxsize=64)
def _proxies(url: str) -> _towpath.Proxies | None:
    return _limits.proxies(url)


def _engine(tls: tuple[Any, Any], settings: dict[str, Any]) -> Engine:
    verify, cert = tls
    if verify is not True and not os.path.exists(verify):
        raise OSError(f"Could not find a suitable TLS CA certificate bundle, invalid path: {verify}")
    files = (cert if isinstance(cert, tuple) else (cert,)) if cert else ()
    for kind, file in zip(("certificate", "key"), files, strict=False):
        if not os.path.exists(file):
            raise OSError(f"Could not find the TLS {kind} file, invalid path: {file}")
    return Engine(verify=verify, cert=cert, **settings)


class _File:
    """A response's body, as a file that gives what there is."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._piece = memoryview(b"")
        self.closed = False

    def read(self, size: int | None = None) -> bytes:
        """At most so many bytes, at least one unless the body has ended; all without a size."""
        if size is None or size < 0:
            return b"".join(self._pieces())
        if not self._piece and not self._next():
            return b""
        piece, self._piece = self._piece[:size], self._piece[size:]
        return bytes(piece)

    def read1(self, size: int | None = None) -> bytes:
        return self.read(1 << 16 if size is None or size < 0 else size)

    def _pieces(self) -> Iterator[bytes]:
        while self._piece or self._next():
            piece, self._piece = self._piece, memoryview(b"")
            yield bytes(piece)

    def _next(self) -> bool:
        if self.closed:
            return False
        try:
            piece = self._exchange.chunk()
        except _towpath.Failure as failure:
            self.close()
            error = _errors.error(failure)
            if isinstance(error, TimeoutError):
                raise TimeoutError(str(error)) from error
            raise http.client.HTTPException(str(error)) from error
        if piece is None:
            self.closed = True
            return False
        self._piece = memoryview(piece)
        return True

    def isclosed(self) -> bool:
        return self.closed and not self._piece

    def close(self) -> None:
        self.closed = True
        self._exchange.native.cancel()

    def flush(self) -> None:
        pass


class _Original:
    """What cookies are taken from."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self.msg = http.client.HTTPMessage()
        for name, value in fields:
            self.msg.add_header(name, value)

    def isclosed(self) -> bool:
        return True

    def close(self) -> None:
        pass


class _Raw(urllib3.HTTPResponse):
    """urllib3's response, whose body comes from the engine. `towpath` has the report and the timeline, once the body
    was read."""

    def __init__(self, exchange: Exchange, request: requests.PreparedRequest, head: Head) -> None:
        status, fields, _ = head
        decoded = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields]
        file: Any = _File(exchange)
        original: Any = _Original(decoded)
        version = exchange.native.version()
        super().__init__(
            file,
            headers=urllib3.HTTPHeaderDict(decoded),
            status=status,
            version=20 if version == "HTTP/2" else 11,
            version_string=version,
            reason=http.client.responses.get(status, ""),
            preload_content=False,
            decode_content=False,
            original_response=original,
            request_method=request.method,
            request_url=request.url,
        )
        self.towpath = exchange.native

    def stream(self, amt: int | None = 2**16, decode_content: bool | None = None) -> Generator[bytes, None, None]:
        if "content-length" in self.headers:
            yield from super().stream(amt, decode_content)
            return
        # As urllib3 does with chunks: what has no length is given out as it comes.
        while data := self.read1(amt or 1 << 16, decode_content):
            yield data


def _body(request: requests.PreparedRequest) -> tuple[Any, int | None]:
    body: Any = request.body
    if isinstance(body, str):
        body = body.encode()
    if body is None or isinstance(body, bytes):
        return body, None
    if isinstance(body, (bytearray, memoryview)):
        return bytes(body), None
    length = request.headers.get("Content-Length")
    read = getattr(body, "read", None)
    pieces = iter(body) if read is None else iter(lambda: _bytes(read(1 << 16)), b"")
    return map(_bytes, pieces), None if length is None else int(length)


def _bytes(piece: Any) -> bytes:
    return piece.encode() if isinstance(piece, str) else bytes(piece)


def _url(url: str) -> str:
    # Without credentials: requests has made a field of that.
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _pair(timeout: Any) -> tuple[float | None, float | None]:
    """Seconds to connect, and of silence."""
    if isinstance(timeout, tuple):
        try:
            connect, read = timeout
        except ValueError:
            raise ValueError(f"a timeout is a number of seconds, or (connect, read): {timeout}") from None
    elif isinstance(timeout, urllib3.Timeout):
        connect, read = timeout.connect_timeout, timeout.read_timeout
    else:
        connect, read = timeout, timeout
    urllib3.Timeout(connect=connect, read=read)
    return connect, read


def _raise(failure: _errors.Error | _towpath.Failure, request: requests.PreparedRequest, proxy: str | None) -> NoReturn:
    """Raises requests' error, whose cause is this library's, with its report."""
    ours = _errors.error(failure) if isinstance(failure, _towpath.Failure) else failure
    # It is the proxy that cannot be reached.
    kind = "proxy" if proxy is not None and ours.kind in ("connect", "resolve") else ours.kind
    raise _CLASSES.get(kind, requests.ConnectionError)(str(ours), request=request) from ours

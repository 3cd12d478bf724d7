"""WebSocket, blocking and for event loops: messages both ways over one connection."""

import json
import time
from collections.abc import AsyncIterator, Generator, Iterable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

from . import _errors, _hub, _towpath
from ._exchange import Fields
from ._headers import Headers

Message = str | bytes | bytearray | memoryview

# Closes that end an iteration without an error: all was said, the server goes away, no code.
_WELL = (1000, 1001, 1005)


class Wishes(NamedTuple):
    """How a connection is to be opened."""

    subprotocols: list[str]
    compression: bool
    max_message_bytes: int | None
    ping_interval: float | None
    pong_timeout: float | None
    close_timeout: float | None


class Address(NamedTuple):
    """Where it leads, by which engine."""

    engine: _towpath.Engine
    url: str
    fields: Fields
    options: _towpath.Options
    wishes: Wishes


def wishes(
    subprotocols: Iterable[str] = (),
    compression: bool = True,
    max_message_bytes: int | None = None,
    ping_interval: float | None = None,
    pong_timeout: float | None = None,
    close_timeout: float | None = None,
) -> Wishes:
    return Wishes(list(subprotocols), compression, max_message_bytes, ping_interval, pong_timeout, close_timeout)


class _BaseWebSocket:
    """What is known of a connection."""

    _lasting: "_BaseLasting | None" = None

    def __init__(self, native: _towpath.Socket, url: str) -> None:
        self._native = native
        self.url = url
        """What was asked for."""

    @property
    def headers(self) -> Headers:
        """The fields of the server's answer."""
        return Headers(self._native.headers())

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol that the server has chosen."""
        return self._native.subprotocol()

    @property
    def is_compressed(self) -> bool:
        """Whether messages are compressed."""
        return self._native.is_compressed()

    @property
    def close_code(self) -> int | None:
        """The code of the server's close (1005 where it gave none); None before."""
        reason = self._native.close_reason()
        return None if reason is None else reason[0]

    @property
    def close_reason(self) -> str | None:
        """The server's words to its close; None before."""
        reason = self._native.close_reason()
        return None if reason is None else reason[1]

    @property
    def history(self) -> list[tuple[float, str]]:
        """What happened to it in words: seconds since it was asked for, and what."""
        return self._native.history()

    @property
    def report(self) -> dict[str, Any] | None:
        """What happened to its request, once the connection is gone."""
        report = self._native.report()
        return None if report is None else dict(json.loads(report))

    def _raise(self, failure: _towpath.Failure) -> NoReturn:
        error = _errors.error(failure)
        if isinstance(error, _errors.ClosedError):
            error.code, error.reason = self._native.close_reason() or (1006, "")
        raise error from None

    def _closed(self) -> _errors.ClosedError:
        """For one of several that was lost."""
        error = _errors.ClosedError("it is closed: the next connection has taken its place")
        error.code, error.reason = self._native.close_reason() or (1006, "")
        return error

    @property
    def _lost(self) -> bool:
        """Whether another is to take its place."""
        return self._lasting is not None and self._lasting._current is not self._native

    def _ends(self, error: _errors.ClosedError) -> bool:
        return self._lost or error.code in _WELL or self._native.is_closing()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"


class _BaseLasting:
    """What several connections after one another have in common."""

    def __init__(self) -> None:
        # The open one's native half: it knows nothing of this, so that both go once the app holds neither.
        self._current: _towpath.Socket | None = None
        self._opened: list[_towpath.Socket] = []

    def _leave(self) -> None:
        """The app has left the one that is open."""
        if self._current is not None:
            self._current.close(1000, "")
            self._current = None


def _outgoing(message: Message) -> _towpath.Outgoing:
    return _towpath.Outgoing(bytes(message) if isinstance(message, (bytearray, memoryview)) else message)


class WebSocket(_BaseWebSocket):
    """An open connection; any thread may use it. Iterating over it gives the messages up to the close. Text is `str`,
    the rest `bytes`. At the end of a block it is closed; if an error ends the block, without waiting for the server.

    `timeout` is s, after which a call raises `Timeout` and nothing was lost.
    """

    _lasting: "LastingWebSocket | None"

    def send(self, message: Message, timeout: float | None = None) -> None:
        """Sends a message; waits while 256 KiB of those before have not left."""
        try:
            sent = self._native.send(_outgoing(message), timeout)
        except _towpath.Failure as failure:
            self._raise(failure)
        if not sent:
            raise _timeout("write timeout", f"there was no room for the message within {timeout} s")

    def receive(self, timeout: float | None = None) -> str | bytes:
        """The next message; behind the last it raises `ClosedError`."""
        if self._lasting is not None:
            return self._lasting._receive(self, timeout)
        try:
            message = self._native.receive(timeout)
        except _towpath.Failure as failure:
            self._raise(failure)
        if message is None:
            raise _timeout("read timeout", f"no message came within {timeout} s")
        return message

    def ping(self, timeout: float | None = None) -> float:
        """Asks the server for a sign of life, and tells how many seconds its answer took. The answer stands behind what
        the server has sent before, and is not seen before the app has received that."""
        try:
            took = self._native.ping().wait(self._native, timeout)
        except _towpath.Failure as failure:
            self._raise(failure)
        if took is None:
            raise _timeout("read timeout", f"no answer to a ping came within {timeout} s")
        return took

    def close(self, code: int = 1000, reason: str = "", *, wait: bool = True) -> None:
        """Closes it: what was sent before leaves first. Waits for the server's close, at most `close_timeout`, and
        drops the messages that come until then; without `wait` these can still be received."""
        self._native.close(code, reason)
        if wait:
            self._native.closed()

    def __iter__(self) -> Iterator[str | bytes]:
        while True:
            try:
                message = self.receive()
            except _errors.ClosedError as error:
                if self._ends(error):
                    return
                raise
            yield message

    def __enter__(self) -> "WebSocket":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._native.abandon()
            return
        try:
            self.close()
        except BaseException:
            self._native.abandon()
            raise


def open_blocking(address: Address) -> WebSocket:
    """Opens one."""
    engine, url, fields, options, wishes = address
    try:
        native = engine.socket(url, fields, options, wishes)
        try:
            native.open()
        except BaseException:
            native.abandon()
            raise
    except _towpath.Failure as failure:
        raise _errors.error(failure) from None
    return WebSocket(native, url)


class LastingWebSocket(_BaseLasting):
    """Iterating over it gives a `WebSocket` whenever one was opened, in place of one that broke: what is sent once for
    each connection is sent there. It ends when the server or the app closes for good; a refused handshake raises."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        engine, self._url, fields, options, wishes = address
        try:
            self._native = engine.sockets(self._url, fields, options, wishes)
        except _towpath.Failure as failure:
            raise _errors.error(failure) from None

    def __iter__(self) -> "LastingWebSocket":
        return self

    def __next__(self) -> WebSocket:
        self._leave()
        while not self._opened:
            step = self._next(None)
            if step is None:
                continue
            what, value = step
            if what == "opened":
                self._opened.append(value)
            elif what == "over":
                raise StopIteration
        self._current = self._opened.pop()
        socket = WebSocket(self._current, self._url)
        socket._lasting = self
        return socket

    def close(self) -> None:
        """Gives it up: what is open is closed (1001)."""
        self._native.abandon()

    def __enter__(self) -> "LastingWebSocket":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _receive(self, socket: WebSocket, timeout: float | None) -> str | bytes:
        until = None if timeout is None else time.monotonic() + timeout
        while not socket._lost:
            step = self._next(None if until is None else max(0.0, until - time.monotonic()))
            if step is None:
                raise _timeout("read timeout", f"no message came within {timeout} s")
            what, value = step
            if what == "message":
                message: str | bytes = value
                return message
            if what == "opened":
                # Another thread has heard that this one was lost.
                self._opened.append(value)
            self._current = None
        raise socket._closed()

    def _next(self, timeout: float | None) -> "_towpath.Step | None":
        try:
            return self._native.next(timeout)
        except _towpath.Failure as failure:
            raise _errors.error(failure) from None


class AsyncWebSocket(_BaseWebSocket):
    """An open connection; any number of tasks of its loop may use it. Asynchronous iteration gives the messages up to
    the close. Text is `str`, the rest `bytes`. At the end of a block it is closed; if an error ends the block, or the
    task is cancelled, without waiting for the server. A call that is cancelled loses no message."""

    _lasting: "AsyncLastingWebSocket | None"

    def __init__(self, native: _towpath.Socket, url: str, hub: _hub.Hub, token: int) -> None:
        super().__init__(native, url)
        self._hub, self._token = hub, token

    async def send(self, message: Message) -> None:
        """Sends a message; waits while 256 KiB of those before have not left."""
        outgoing = _outgoing(message)
        try:
            while not self._native.send(outgoing):
                await self._hub.wait(self._token)
        except _towpath.Failure as failure:
            self._raise(failure)

    async def receive(self) -> str | bytes:
        """The next message; behind the last it raises `ClosedError`."""
        if self._lasting is not None:
            return await self._lasting._receive(self)
        try:
            while (message := self._native.receive()) is None:
                await self._hub.wait(self._token)
        except _towpath.Failure as failure:
            self._raise(failure)
        return message

    async def ping(self) -> float:
        """Asks the server for a sign of life, and tells how many seconds its answer took. The answer stands behind what
        the server has sent before, and is not seen before the app has received that."""
        try:
            ping = self._native.ping()
            while (took := ping.wait(self._native)) is None:
                await self._hub.wait(self._token)
        except _towpath.Failure as failure:
            self._raise(failure)
        return took

    async def close(self, code: int = 1000, reason: str = "", *, wait: bool = True) -> None:
        """Closes it: what was sent before leaves first. Waits for the server's close, at most `close_timeout`, and
        drops the messages that come until then; without `wait` these can still be received."""
        self._native.close(code, reason)
        while wait and not self._native.closed():
            await self._hub.wait(self._token)

    async def __aiter__(self) -> AsyncIterator[str | bytes]:
        while True:
            try:
                message = await self.receive()
            except _errors.ClosedError as error:
                if self._ends(error):
                    return
                raise
            yield message

    async def __aenter__(self) -> "AsyncWebSocket":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._native.abandon()
            return
        try:
            await self.close()
        except BaseException:
            self._native.abandon()
            raise


class Opening:
    """What is awaited, or entered, to open a connection."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._socket: AsyncWebSocket | None = None

    def __await__(self) -> Generator[Any, None, AsyncWebSocket]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncWebSocket:
        self._socket = await self._open()
        return self._socket

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            await self._socket.__aexit__(kind, value, trace)

    async def _open(self) -> AsyncWebSocket:
        engine, url, fields, options, wishes = self._address
        hub, token = _hub.current(), _hub.token()
        try:
            native = engine.socket(url, fields, options, wishes, hub=hub.native, token=token)
            try:
                while not native.open():
                    await hub.wait(token)
            except BaseException:
                native.abandon()
                raise
        except _towpath.Failure as failure:
            raise _errors.error(failure) from None
        return AsyncWebSocket(native, url, hub, token)


class AsyncLastingWebSocket(_BaseLasting):
    """As `LastingWebSocket`, iterated asynchronously."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        engine, self._url, fields, options, wishes = address
        self._hub, self._token = _hub.current(), _hub.token()
        hub, token = self._hub.native, self._token
        try:
            self._native = engine.sockets(self._url, fields, options, wishes, hub=hub, token=token)
        except _towpath.Failure as failure:
            raise _errors.error(failure) from None

    def __aiter__(self) -> "AsyncLastingWebSocket":
        return self

    async def __anext__(self) -> AsyncWebSocket:
        self._leave()
        while not self._opened:
            what, value = await self._next()
            if what == "opened":
                self._opened.append(value)
            elif what == "over":
                raise StopAsyncIteration
        self._current = self._opened.pop()
        socket = AsyncWebSocket(self._current, self._url, self._hub, self._token)
        socket._lasting = self
        return socket

    async def close(self) -> None:
        """Gives it up: what is open is closed (1001)."""
        self._native.abandon()

    async def __aenter__(self) -> "AsyncLastingWebSocket":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _receive(self, socket: AsyncWebSocket) -> str | bytes:
        while not socket._lost:
            what, value = await self._next()
            if what == "message":
                message: str | bytes = value
                return message
            if what == "opened":
                # Another task has heard that this one was lost.
                self._opened.append(value)
            self._current = None
        raise socket._closed()

    async def _next(self) -> "_towpath.Step":
        try:
            while (step := self._native.next()) is None:
                await self._hub.wait(self._token)
        except _towpath.Failure as failure:
            raise _errors.error(failure) from None
        return step


def _timeout(kind: str, text: str) -> _errors.Timeout:
    error = _errors.Timeout(text)
    error.kind = kind
    return error

"""One request and its response, blocking and for event loops.

The native half never waits for a body that Python makes: it is sent as far as there is room, while the head is waited
for and, where a server answers before it has everything, while the response's body is read. What the app does not
read stays with the server.
"""

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator

from . import _hub, _towpath

Fields = Iterable[tuple[str | bytes, str | bytes]]
Head = tuple[int, list[tuple[bytes, bytes]], list[tuple[int, str]]]


class _Piece:
    """What is being sent."""

    __slots__ = ("_piece", "_sent")

    def __init__(self) -> None:
        self._piece = b""
        self._sent = 0

    def set(self, piece: bytes) -> None:
        self._piece = piece if isinstance(piece, bytes) else bytes(piece)
        self._sent = 0

    def send(self, exchange: _towpath.Exchange) -> bool | None:
        """Whether there was room for all of it; None when no more is wanted."""
        while self._sent < len(self._piece):
            taken = exchange.write(self._piece, self._sent)
            if taken < 0:
                return None
            self._sent += taken
            if taken == 0:
                return False
        return True


class Exchange:
    """For threads: every method blocks until it is done."""

    __slots__ = ("native", "_pieces", "_piece")

    def __init__(
        self,
        engine: _towpath.Engine,
        method: str,
        url: str,
        fields: Fields,
        options: _towpath.Options,
        body: bytes | Iterable[bytes] | None,
        length: int | None = None,
    ) -> None:
        self._pieces: Iterator[bytes] | None = None
        if body is None or isinstance(body, bytes):
            self.native = engine.start(method, url, fields, options, body=body)
        else:
            self.native = engine.start(method, url, fields, options, follows=True, length=length)
            self._pieces = iter(body)
            self._piece = _Piece()

    def head(self) -> Head:
        """The response's head."""
        try:
            while True:
                self._send()
                head = self.native.head(self._pieces is not None)
                if head is not None:
                    return head
        except BaseException:
            self.native.cancel()
            raise

    def chunk(self) -> bytes | None:
        """The next piece of the response's body; None after the last."""
        if self._pieces is None:
            return self.native.chunk()
        while True:
            self._send()
            chunk = self.native.chunk(self._pieces is not None)
            if chunk != b"":
                return chunk

    def _send(self) -> None:
        while self._pieces is not None:
            sent = self._piece.send(self.native)
            if sent is False:
                return
            piece = next(self._pieces, None) if sent else None
            if piece is not None:
                self._piece.set(piece)
                continue
            self._pieces = None
            if sent:
                self.native.finish()


class AsyncExchange:
    """For event loops: the same, awaited."""

    __slots__ = ("native", "_hub", "_token", "_pieces", "_piece", "_below")

    def __init__(
        self,
        engine: _towpath.Engine,
        method: str,
        url: str,
        fields: Fields,
        options: _towpath.Options,
        body: bytes | AsyncIterable[bytes] | None,
        length: int | None = None,
        below: object = None,
    ) -> None:
        """`below`: a generator that makes what `body` gives, which is closed with it."""
        self._hub, self._token = _hub.current(), _hub.token()
        self._pieces: AsyncIterator[bytes] | None = None
        hub, token = self._hub.native, self._token
        if body is None or isinstance(body, bytes):
            self.native = engine.start(method, url, fields, options, body=body, hub=hub, token=token)
        else:
            self.native = engine.start(method, url, fields, options, follows=True, length=length, hub=hub, token=token)
            self._pieces = body.__aiter__()
            self._below = below
            self._piece = _Piece()

    async def head(self) -> Head:
        """The response's head."""
        try:
            while True:
                if self._pieces is not None:
                    await self._send()
                head = self.native.head()
                if head is not None:
                    return head
                await self._hub.wait(self._token)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Gives the request up, unless it has ended, and what makes its body with it."""
        self.native.cancel()
        await self._drop_pieces()

    async def chunk(self) -> bytes | None:
        """The next piece of the response's body; None after the last."""
        while True:
            if self._pieces is not None:
                await self._send()
            chunk = self.native.chunk()
            if chunk != b"":
                return chunk
            await self._hub.wait(self._token)

    async def _send(self) -> None:
        while self._pieces is not None:
            sent = self._piece.send(self.native)
            if sent is False:
                return
            piece = await anext(self._pieces, None) if sent else None
            if piece is not None:
                self._piece.set(piece)
                continue
            await self._drop_pieces()
            if sent:
                self.native.finish()

    async def _drop_pieces(self) -> None:
        # A generator that is left alone before its end would be closed whenever it is collected, which Trio warns of.
        pieces, self._pieces = self._pieces, None
        if pieces is None:
            return
        for generator in (pieces, self._below):
            if inspect.isasyncgen(generator) and not generator.ag_running:
                await generator.aclose()

"""How an event loop waits for exchanges: one descriptor for each loop, whatever the number of requests."""

import asyncio
import itertools
import weakref
from typing import Protocol

from . import _towpath

_tokens = itertools.count(1)


class Hub(Protocol):
    """What waits in one kind of event loop."""

    native: _towpath.Hub

    async def wait(self, token: int) -> None:
        """Until the exchange with this token goes on. The caller has just looked, without giving the loop a turn
        since."""


def token() -> int:
    """A number for an exchange; none is used twice."""
    return next(_tokens)


class _AsyncioHub:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.native = _towpath.Hub()
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}
        # The loop keeps the method, and the hub by it; the hub keeps no loop, so that both can go.
        loop.add_reader(self.native.fileno(), self._tell)

    async def wait(self, token: int) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(token, set())
        waiting.add(future)
        try:
            await future
        finally:
            waiting.discard(future)
            if not waiting:
                del self._waiting[token]

    def _tell(self) -> None:
        for token in self.native.take():
            # A WebSocket may have several tasks: each of them looks.
            for future in self._waiting.get(token, ()):
                if not future.done():
                    future.set_result(None)


_asyncio_hubs: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _AsyncioHub]" = weakref.WeakKeyDictionary()


def current() -> Hub:
    """That of the running event loop, asyncio's or Trio's."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return _trio_hub()
    hub = _asyncio_hubs.get(loop)
    if hub is None:
        hub = _asyncio_hubs[loop] = _AsyncioHub(loop)
    return hub


def _trio_hub() -> Hub:
    try:
        from . import _trio
    except ImportError:
        raise RuntimeError("neither asyncio nor Trio is running") from None
    return _trio.current()

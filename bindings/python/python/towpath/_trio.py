"""How Trio waits for exchanges: see `_hub`."""

import trio

from . import _towpath

_hub: "trio.lowlevel.RunVar[TrioHub]" = trio.lowlevel.RunVar("towpath hub")


class TrioHub:
    def __init__(self) -> None:
        self.native = _towpath.Hub()
        self._waiting: dict[int, set[trio.Event]] = {}
        # It lives as long as the run.
        trio.lowlevel.spawn_system_task(self._tell, name="towpath hub")

    async def wait(self, token: int) -> None:
        event = trio.Event()
        waiting = self._waiting.setdefault(token, set())
        waiting.add(event)
        try:
            await event.wait()
        finally:
            waiting.discard(event)
            if not waiting:
                del self._waiting[token]

    async def _tell(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self.native.fileno())
            for token in self.native.take():
                for event in self._waiting.get(token, ()):
                    event.set()


def current() -> TrioHub:
    """That of the running event loop."""
    try:
        return _hub.get()
    except LookupError:
        hub = TrioHub()
        _hub.set(hub)
        return hub

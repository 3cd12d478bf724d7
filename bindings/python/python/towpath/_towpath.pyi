"""The native half: see `src/lib.rs`."""

from collections.abc import Iterable
from typing import Protocol

class _Settings(Protocol):
    roots: bytes | None
    identity: tuple[bytes, bytes] | None
    pins: list[bytes]
    memory: str | None
    watch_network: bool | None
    window_bytes: int | None
    max_connections: int | None
    max_idle: int | None
    max_calls: int | None
    idle_timeout: float | None

class Failure(Exception):
    args: tuple[str, str, str | None]

class Hub:
    def __init__(self) -> None: ...
    def fileno(self) -> int: ...
    def take(self) -> list[int]: ...

class Options:
    def __init__(
        self,
        *,
        total: float | None = None,
        answer: float | None = None,
        connect: float | None = None,
        first_byte: float | None = None,
        gap: float | None = None,
        retries: int | None = None,
        repeat: str = "by-method",
        redirects: int = 0,
        redirects_to_http: bool = False,
        decode: bool = False,
        resume: bool = True,
        hedge: bool = False,
        wait_for_network: bool = False,
        fail_at_rest: bool = False,
        unlimited: bool = False,
        priority: str = "normal",
        http_versions: str = "negotiated",
    ) -> None: ...

class Exchange:
    def write(self, piece: bytes, offset: int) -> int: ...
    def finish(self) -> None: ...
    def head(self, room: bool = False) -> tuple[int, list[tuple[bytes, bytes]], list[tuple[int, str]]] | None: ...
    def version(self) -> str: ...
    def chunk(self, room: bool = False) -> bytes | None: ...
    def trailers(self) -> list[tuple[bytes, bytes]]: ...
    def report(self) -> str | None: ...
    def timeline(self) -> list[tuple[float, str]]: ...
    def cancel(self) -> None: ...

class Engine:
    def __init__(self, wanted: _Settings) -> None: ...
    def is_alive(self) -> bool: ...
    def start(
        self,
        method: str,
        url: str,
        fields: Iterable[tuple[str | bytes, str | bytes]],
        options: Options,
        *,
        body: bytes | None = None,
        follows: bool = False,
        length: int | None = None,
        hub: Hub | None = None,
        token: int = 0,
    ) -> Exchange: ...
    def network_changed(self, label: str, mobile: bool, online: bool) -> None: ...
    def save_memory(self, path: str) -> None: ...
    def memory_failure(self) -> str | None: ...
    def wakeups(self) -> int: ...
    def close(self) -> None: ...

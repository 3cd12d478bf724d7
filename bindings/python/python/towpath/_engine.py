"""Engines: what carries requests."""

import os
import ssl
import threading
from collections.abc import Iterable
from types import TracebackType

from . import _errors, _towpath

Path = str | os.PathLike[str]


class Engine:
    """One thread outside of Python that carries any number of requests. It starts with the first of them; clients,
    transports and adapters may share it. After a fork the child begins with a new one.

    - `verify`: whom to believe behind https: `True` for the platform's roots, or a path of a PEM file, PEM as bytes,
      or an `ssl.SSLContext` whose loaded roots are taken. There is no way not to check.
    - `cert`: who we are: a path of a PEM file with certificates and key, or one for each.
    - `pins`: SHA-256 of public keys (`SubjectPublicKeyInfo`), one of which the server must have: 32 bytes each.
    - `memory`: a file that `save_memory` wrote: addresses, names and networks that were known.
    - `watch_network`: `True` to believe the kernel that there is no network (Linux), `False` not to ask it what
      network there is.
    - `window_bytes`: bytes of either body that may wait: 262144. `max_connections`: connections to one origin: 16.
      `max_idle`: connections without a request: 32. `max_calls`: requests under way: 1024; one more fails.
      `max_calls_per_origin`: to one origin; more wait in order, within `timeout`: no limit. `max_calls_under_way`: to
      all of them; more wait as well: no limit. `idle_timeout`: s that a connection may have no request: 60.
    """

    def __init__(
        self,
        *,
        verify: bool | Path | bytes | ssl.SSLContext = True,
        cert: Path | tuple[Path, Path] | None = None,
        pins: Iterable[bytes] = (),
        memory: Path | None = None,
        watch_network: bool | None = None,
        window_bytes: int | None = None,
        max_connections: int | None = None,
        max_idle: int | None = None,
        max_calls: int | None = None,
        max_calls_per_origin: int | None = None,
        max_calls_under_way: int | None = None,
        idle_timeout: float | None = None,
    ) -> None:
        self.roots = _roots(verify)
        self.identity = _identity(cert)
        self.pins = [bytes(pin) for pin in pins]
        self.memory = None if memory is None else os.fspath(memory)
        self.watch_network = watch_network
        self.window_bytes = window_bytes
        self.max_connections = max_connections
        self.max_idle = max_idle
        self.max_calls = max_calls
        self.max_calls_per_origin = max_calls_per_origin
        self.max_calls_under_way = max_calls_under_way
        self.idle_timeout = idle_timeout
        self._native: _towpath.Engine | None = None
        self._closed = False
        self._starting = threading.Lock()
        self._process = os.getpid()

    def native(self) -> _towpath.Engine:
        """The running engine."""
        native = self._native
        if native is not None and self._process == os.getpid():
            return native
        return self._start()

    def _start(self) -> _towpath.Engine:
        if self._process != os.getpid():
            # The lock may be held by a thread that is not in this process.
            self._starting = threading.Lock()
            self._native, self._process = None, os.getpid()
        with self._starting:
            if self._closed:
                raise _errors.EngineError("the engine was closed")
            if self._native is None:
                try:
                    self._native = _towpath.Engine(self)
                except _towpath.Failure as failure:
                    raise _errors.error(failure) from None
            return self._native

    def network_changed(self, label: str, *, mobile: bool = False, online: bool = True) -> None:
        """Says what network there is, in place of the kernel from here on: `label` is a name by which it is known
        again."""
        try:
            self.native().network_changed(label, mobile, online)
        except _towpath.Failure as failure:
            raise _errors.error(failure) from None

    def save_memory(self, path: Path) -> None:
        """Saves what is remembered of addresses, names and networks. A crash at any moment leaves the old file or the
        new one."""
        try:
            self.native().save_memory(os.fspath(path))
        except _towpath.Failure as failure:
            raise _errors.error(failure) from None

    @property
    def memory_failure(self) -> str | None:
        """Why the file of `memory` was not used; None if it was, or there was none."""
        return self.native().memory_failure()

    @property
    def wakeups(self) -> int:
        """How often its thread has woken up."""
        return 0 if self._native is None else self._native.wakeups()

    def close(self) -> None:
        """Takes no more requests. Those that are under way go on, and its thread ends with the last of them."""
        self._closed = True
        native, self._native = self._native, None
        if native is not None and self._process == os.getpid():
            native.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _roots(verify: bool | Path | bytes | ssl.SSLContext) -> bytes | None:
    if verify is True:
        return None
    if isinstance(verify, ssl.SSLContext):
        if verify.verify_mode != ssl.CERT_REQUIRED:
            raise ValueError("certificates are always checked: a context that does not is not used")
        roots = verify.get_ca_certs(binary_form=True)
        return "".join(map(ssl.DER_cert_to_PEM_cert, roots)).encode() if roots else None
    if isinstance(verify, bytes):
        return verify
    if not verify:
        raise ValueError("certificates are always checked: verify=False is not supported")
    with open(verify, "rb") as file:
        return file.read()


def _identity(cert: Path | tuple[Path, Path] | None) -> tuple[bytes, bytes] | None:
    if cert is None:
        return None
    chain, key = cert if isinstance(cert, tuple) else (cert, cert)
    with open(chain, "rb") as chain_file, open(key, "rb") as key_file:
        return chain_file.read(), key_file.read()

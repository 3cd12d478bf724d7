"""A plugin of pytest that makes httpx and requests use this library wherever they would use their own transports.

What stands in `SUITE.differences` is expected to fail. A test that fails and does not stand there fails the run, and so
does one that stands there and passes. One behind `!` is not run, and one behind `?` may pass: it depends on which
of two things is first.
"""

from __future__ import annotations

import os
import pathlib

import pytest
import towpath

_SUITE = os.environ["TOWPATH_SUITE"]


def _use_in_httpx() -> None:
    import httpx

    def kept(own, ours):  # type: ignore[no-untyped-def]
        def make(*, verify=True, cert=None, proxy=None, **rest):  # type: ignore[no-untyped-def]
            if proxy is not None:
                return own(verify=verify, cert=cert, proxy=proxy, **rest)
            return ours(verify=verify, cert=cert, limits=rest.get("limits"))

        return make

    client = httpx._client
    client.HTTPTransport = kept(client.HTTPTransport, towpath.Transport)
    client.AsyncHTTPTransport = kept(client.AsyncHTTPTransport, towpath.AsyncTransport)


def _use_in_requests() -> None:
    import requests

    requests.sessions.HTTPAdapter = towpath.Adapter


{"httpx": _use_in_httpx, "requests": _use_in_requests}[_SUITE]()


def _differences() -> dict[str, tuple[str, str]]:
    """The tests that are expected to fail, why, and what is said of them."""
    found: dict[str, tuple[str, str]] = {}
    reason = ""
    for line in (pathlib.Path(__file__).parent / f"{_SUITE}.differences").read_text().splitlines():
        if line.startswith("  "):
            found[line.strip("!? ")] = (reason, line.strip()[0])
        elif not line.startswith("#"):
            reason = line
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    differences = _differences()
    used = set()
    for item in items:
        # A test with parameters may fail with each of them, or with those that are named.
        for name in {item.nodeid, item.nodeid.partition("[")[0]} & set(differences):
            used.add(name)
            reason, mark = differences[name]
            item.add_marker(pytest.mark.xfail(reason=reason, run=mark != "!", strict=mark != "?"))
    if unknown := sorted(set(differences) - used):
        raise pytest.UsageError(f"differences of tests that there are not: {', '.join(unknown)}")

"""The adapter for requests: what requests' own tests do not ask. Those run through the adapter too: see `suites`."""

from __future__ import annotations

import pickle
import time

import pytest
import requests
import towpath
from server import Proxy, Server


@pytest.fixture
def session():
    with requests.Session() as session:
        session.mount("http://", towpath.Adapter())
        yield session


def test_one_line_is_enough(session: requests.Session, server: Server) -> None:
    response = session.get(f"{server.url}/gzip")
    assert (response.status_code, response.reason) == (200, "OK") and response.text == "squeezed" * 100
    assert response.raw.towpath.timeline()


def test_cookies_are_kept(session: requests.Session, server: Server) -> None:
    session.get(f"{server.url}/cookies")
    assert ["cookie", "a=1; b=2"] in session.get(f"{server.url}/fields").json()["fields"]


def test_what_comes_in_chunks_is_given_out_as_it_comes(session: requests.Session, server: Server) -> None:
    with session.get(f"{server.url}/chunks/5", stream=True) as response:
        assert [len(line) for line in response.iter_content(None)] == [8] * 5
    with session.get(f"{server.url}/chunks/5", stream=True) as response:
        assert list(response.iter_lines()) == [b"piece %d" % number for number in range(5)]


def test_a_response_outlives_its_session(server: Server) -> None:
    with requests.Session() as session:
        session.mount("http://", towpath.Adapter())
        response = session.get(f"{server.url}/bytes/3000000", stream=True)
    assert len(response.content) == 3_000_000


def test_uploads_stream(session: requests.Session, server: Server, tmp_path) -> None:
    file = tmp_path / "large"
    file.write_bytes(bytes(3_000_000))
    with file.open("rb") as data:
        assert len(session.post(f"{server.url}/echo", data=data).content) == 3_000_000
    pieces = (bytes(100_000) for _ in range(80))
    assert len(session.post(f"{server.url}/echo", data=pieces).content) == 8_000_000


@pytest.mark.parametrize(
    ("path", "timeout", "error"),
    [
        ("/slow/5", 0.1, requests.ReadTimeout),
        ("/slow/5", (3, 0.1), requests.ReadTimeout),
        ("/stall/10", 0.1, requests.ConnectionError),
        ("/cut/10", 5, requests.exceptions.ChunkedEncodingError),
        ("/garbage", 5, requests.ConnectionError),
    ],
)
def test_errors_are_requests_own(session, server, path, timeout, error) -> None:
    begin = time.monotonic()
    with pytest.raises(error):
        session.get(server.url + path, timeout=timeout)
    assert time.monotonic() - begin < 1


def test_errors_of_connecting(session: requests.Session) -> None:
    with pytest.raises(requests.ConnectionError) as raised:
        session.get("http://127.0.0.1:1/")
    assert (
        isinstance(raised.value.__cause__, towpath.ConnectError) and raised.value.request.url == "http://127.0.0.1:1/"
    )
    with pytest.raises(ValueError, match="timeout"):
        session.get("http://127.0.0.1:1/", timeout=(1, 2, 3))


def test_proxies_are_asked(session: requests.Session, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with Proxy() as proxy:
        with_user = proxy.url.replace("//", "//user:secret@")
        for url in (proxy.url, with_user, proxy.url.removeprefix("http://")):
            assert session.get("http://app.test/hello", proxies={"http": url}).text == "proxied"
        monkeypatch.setenv("http_proxy", proxy.url)
        assert session.get("http://app.test/hello").text == "proxied"
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert session.get(f"{server.url}/hello").text == "hello"
        assert proxy.lines == ["GET http://app.test/hello HTTP/1.1"] * 4
        assert [b"proxy-authorization: Basic dXNlcjpzZWNyZXQ=" in head for head in proxy.heads] == [
            False,
            True,
            False,
            False,
        ]
        session.mount("https://", towpath.Adapter())
        with pytest.raises(requests.exceptions.ProxyError):
            session.get("https://app.test/", proxies={"https": proxy.url})
    for url in ("ftp://p.test", "http://p.test/proxy.pac"):
        with pytest.raises(requests.exceptions.InvalidProxyURL):
            session.get("http://app.test/", proxies={"http": url})


def test_what_it_does_not_do_is_refused(session: requests.Session, server: Server) -> None:
    session.mount("https://", towpath.Adapter())
    with pytest.raises(requests.exceptions.SSLError, match="always checked"):
        session.get("https://127.0.0.1:1/", verify=False)


def test_a_session_can_be_pickled(session: requests.Session, server: Server) -> None:
    copy = pickle.loads(pickle.dumps(session))
    assert copy.get(f"{server.url}/hello").text == "hello"
    copy.close()

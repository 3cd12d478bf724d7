"""The transports for httpx: what httpx's own tests do not ask. Those run through the transports too: see `suites`."""

from __future__ import annotations

import asyncio
import ssl
import time

import httpx
import pytest
import towpath
import trio
import trustme
from server import Proxy, Server


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def secure(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory):
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(file)
    with Server(str(file)) as running:
        yield running


@pytest.fixture
def client():
    with httpx.Client(transport=towpath.Transport()) as client:
        yield client


def test_the_report_comes_with_the_response(client: httpx.Client, server: Server) -> None:
    exchange = client.get(f"{server.url}/hello").extensions["towpath"]
    assert '"status":200' in exchange.report() and exchange.timeline()


@pytest.mark.parametrize(
    ("path", "timeout", "error"),
    [
        ("/slow/5", httpx.Timeout(5, read=0.1), httpx.ReadTimeout),
        ("/stall/10", httpx.Timeout(5, read=0.1), httpx.ReadTimeout),
        ("/slow/5", httpx.Timeout(None, read=0.1), httpx.ReadTimeout),
        ("/cut/10", httpx.Timeout(5), httpx.RemoteProtocolError),
        ("/garbage", httpx.Timeout(5), httpx.RemoteProtocolError),
    ],
)
def test_errors_are_httpx_s_own(client, server, path, timeout, error) -> None:
    begin = time.monotonic()
    with pytest.raises(error) as raised:
        client.get(server.url + path, timeout=timeout)
    assert time.monotonic() - begin < 1, "the caller's limit is not lengthened by repetitions"
    assert raised.value.request.url.path == path
    assert isinstance(raised.value.__cause__, towpath.Error) and raised.value.__cause__.report["attempts"]


def test_errors_of_connecting(client: httpx.Client) -> None:
    with pytest.raises(httpx.ConnectError):
        client.get("http://127.0.0.1:1/")
    with pytest.raises(httpx.UnsupportedProtocol):
        client.get("gopher://127.0.0.1/")
    # TEST-NET-1: no answer, or the word that there is no route.
    begin = time.monotonic()
    with pytest.raises((httpx.ConnectTimeout, httpx.ConnectError)):
        client.get("http://192.0.2.1/", timeout=httpx.Timeout(None, connect=0.2))
    assert time.monotonic() - begin < 5


def test_a_slow_answer_is_waited_for_without_a_limit(client: httpx.Client, server: Server) -> None:
    assert client.get(f"{server.url}/slow/0.5", timeout=httpx.Timeout(None, connect=0.1)).text == "late"


def test_bodies_stream_both_ways(client: httpx.Client, server: Server) -> None:
    pieces = (bytes(100_000) for _ in range(80))
    with client.stream("POST", f"{server.url}/echo", content=pieces) as response:
        assert sum(map(len, response.iter_bytes())) == 8_000_000


def test_both_event_loops(server: Server) -> None:
    async def main() -> None:
        async def pieces():
            for _ in range(80):
                yield bytes(100_000)

        async with httpx.AsyncClient(transport=towpath.AsyncTransport()) as client:
            assert len((await client.post(f"{server.url}/echo", content=pieces())).content) == 8_000_000
            with pytest.raises(httpx.ReadTimeout):
                await client.get(f"{server.url}/slow/5", timeout=httpx.Timeout(5, read=0.1))

    asyncio.run(main())
    trio.run(main)


def test_a_cancelled_task_gives_its_request_up(server: Server) -> None:
    async def main() -> None:
        engine = towpath.Engine(max_calls=1)
        async with httpx.AsyncClient(transport=towpath.AsyncTransport(engine=engine)) as client:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.get(f"{server.url}/slow/20"), 0.2)
            # The only place is free again.
            assert (await client.get(f"{server.url}/hello")).text == "hello"
        engine.close()

    asyncio.run(main())


def test_requests_to_an_origin_wait_for_one_another(server: Server) -> None:
    limits = httpx.Limits(max_connections=2, max_keepalive_connections=1, keepalive_expiry=5)

    async def main() -> None:
        async with httpx.AsyncClient(transport=towpath.AsyncTransport(limits=limits)) as client:
            seen = server.seen["slow"]
            slow = [asyncio.create_task(client.get(f"{server.url}/slow/20", timeout=30)) for _ in range(2)]
            while server.seen["slow"] < seen + 2:
                await asyncio.sleep(0.01)
            with pytest.raises(httpx.PoolTimeout):
                await client.get(f"{server.url}/hello", timeout=httpx.Timeout(5, pool=0.1, connect=None))
            hello = server.seen["hello"]
            given_up = asyncio.create_task(client.get(f"{server.url}/hello"))
            waits = asyncio.create_task(client.get(f"{server.url}/hello"))
            await asyncio.sleep(0.1)
            given_up.cancel()
            await asyncio.sleep(0.1)
            assert not waits.done() and server.seen["hello"] == hello
            slow[0].cancel()
            assert (await waits).text == "hello" and server.seen["hello"] == hello + 1
            slow[1].cancel()
            await asyncio.gather(*slow, given_up, return_exceptions=True)

    asyncio.run(main())
    with httpx.Client(transport=towpath.Transport(limits=httpx.Limits())) as client:
        assert client.get(f"{server.url}/hello").text == "hello"
    with towpath.Engine() as engine, pytest.raises(ValueError):
        towpath.Transport(engine=engine, limits=limits)


def test_max_connections_is_for_all_origins_together(server: Server) -> None:
    async def main() -> None:
        one, other = server.url, server.url.replace("127.0.0.1", "localhost")
        limits = httpx.Limits(max_connections=2)
        async with httpx.AsyncClient(transport=towpath.AsyncTransport(limits=limits)) as client:
            seen = server.seen["slow"]
            slow = [asyncio.create_task(client.get(f"{url}/slow/20", timeout=30)) for url in (one, other)]
            while server.seen["slow"] < seen + 2:
                await asyncio.sleep(0.01)
            for url in (one, other):
                with pytest.raises(httpx.PoolTimeout):
                    await client.get(f"{url}/hello", timeout=httpx.Timeout(5, pool=0.1, connect=None))
            waits = asyncio.create_task(client.get(f"{one}/hello"))
            await asyncio.sleep(0.1)
            assert not waits.done()
            # The turn of one that went elsewhere.
            slow[1].cancel()
            assert (await waits).text == "hello"
            slow[0].cancel()
            await asyncio.gather(*slow, return_exceptions=True)

    asyncio.run(main())


def _reused(client: httpx.Client, url: str) -> bool:
    return '"reused":true' in client.get(url).extensions["towpath"].report()


def test_connections_are_kept_as_limits_say(server: Server) -> None:
    url = f"{server.url}/hello"
    with httpx.Client(transport=towpath.Transport(limits=httpx.Limits(max_keepalive_connections=0))) as client:
        assert [_reused(client, url) for _ in range(3)] == [False, False, False]
    with httpx.Client(transport=towpath.Transport(limits=httpx.Limits(keepalive_expiry=0.2))) as client:
        assert [_reused(client, url) for _ in range(2)] == [False, True]
        time.sleep(0.5)
        assert not _reused(client, url)


def test_a_client_honours_what_httpx_passes_over(
    server: Server, secure: Server, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = authority.cert_pem.bytes()
    for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    with towpath.HttpxClient(
        base_url=server.url, headers={"x-mark": "yes"}, limits=httpx.Limits(max_connections=1)
    ) as client:
        assert ["x-mark", "yes"] in client.get("/fields").json()["fields"]
        with client.stream("GET", "/stall/10"), pytest.raises(httpx.PoolTimeout):
            client.get("/hello", timeout=httpx.Timeout(5, pool=0.1))
    with towpath.HttpxClient(verify=pem, http2=False) as client:
        assert client.get(f"{secure.url}/hello").http_version == "HTTP/1.1"
    with towpath.HttpxClient() as client, pytest.raises(httpx.ConnectError):
        client.get(f"{secure.url}/hello")
    with authority.cert_pem.tempfile() as file:
        monkeypatch.setenv("SSL_CERT_FILE", file)
        with towpath.HttpxClient() as client:
            assert client.get(f"{secure.url}/hello").text == "hello"
    monkeypatch.delenv("SSL_CERT_FILE")
    # The server speaks HTTP/1.1 alone.
    with towpath.HttpxClient(verify=pem, http1=False) as client, pytest.raises(httpx.RequestError):
        client.get(f"{secure.url}/hello", timeout=5)
    for refused in (
        {"verify": False},
        {"transport": towpath.Transport()},
        {"http1": False, "http2": False},
        {"proxy": "ftp://p.test"},
        {"proxy": "http://p.test/proxy.pac"},
        {"proxy": httpx.Proxy("http://p.test", headers={"x": "y"})},
    ):
        with pytest.raises(ValueError):
            towpath.HttpxClient(**refused)
    with pytest.raises(TypeError):
        towpath.HttpxClient(unknown=1)


def test_proxies_are_asked(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with Proxy() as proxy:
        own = httpx.URL(proxy.url.replace("//", "//us%40er:p%3Aw@"))
        for given in (proxy.url, own, httpx.Proxy(proxy.url, auth=("us@er", "p:w"))):
            with towpath.HttpxClient(proxy=given) as client:
                assert client.get("http://app.test/hello").text == "proxied"
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with towpath.HttpxClient() as client:
            assert client.get("http://app.test/hello").text == "proxied"
            with pytest.raises(httpx.ProxyError) as refused:
                client.get("https://app.test/hello")
            assert isinstance(refused.value.__cause__, towpath.ProxyError)
        with towpath.HttpxClient(trust_env=False) as client:
            assert client.get(f"{server.url}/hello").text == "hello"
        with towpath.Client(proxy=proxy.url) as client:
            assert client.get("http://app.test/hello").text == "proxied"
            assert client.get(f"{server.url}/hello", proxy=None).text == "hello"

        async def main() -> None:
            async with towpath.HttpxAsyncClient(proxy=proxy.url) as client:
                assert (await client.get("http://app.test/hello")).text == "proxied"

        asyncio.run(main())
        with_user = [b"proxy-authorization: Basic dXNAZXI6cDp3\r\n" in head for head in proxy.heads]
        assert with_user == [False, True, True, False, False, False, False]
        assert proxy.lines[0] == "GET http://app.test/hello HTTP/1.1"
        assert proxy.lines[4] == "CONNECT app.test:443 HTTP/1.1"


def test_certificates_are_checked(secure: Server, authority: trustme.CA) -> None:
    with httpx.Client(transport=towpath.Transport()) as client, pytest.raises(httpx.ConnectError) as raised:
        client.get(f"{secure.url}/hello")
    assert isinstance(raised.value.__cause__, towpath.TlsError)
    context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    for verify in (context, authority.cert_pem.bytes()):
        with httpx.Client(transport=towpath.Transport(verify=verify)) as client:
            assert client.get(f"{secure.url}/hello").text == "hello"
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for refused in (False, context):
        with pytest.raises(ValueError, match="always checked"):
            towpath.Transport(verify=refused)


def test_an_engine_can_be_shared(server: Server) -> None:
    with towpath.Engine() as engine:
        for _ in range(3):
            with httpx.Client(transport=towpath.Transport(engine=engine)) as client:
                response = client.get(f"{server.url}/hello")
        assert '"reused":true' in response.extensions["towpath"].report()
    with pytest.raises(ValueError):
        towpath.Transport(engine=engine, verify=b"")

"""The library's own clients."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import towpath
import trio
from server import Server


@pytest.fixture
def client():
    with towpath.Client() as client:
        yield client


def test_a_response_is_whole(client: towpath.Client, server: Server) -> None:
    response = client.get(f"{server.url}/hello")
    assert (response.status, response.text, response.headers["Content-Type"]) == (200, "hello", "text/plain")
    assert response.report["status"] == 200 and response.report["bytes_received"] == 5
    assert [what for _, what in response.timeline][-1] == "end: 5 bytes of body"


def test_what_is_asked_for_is_sent(client: towpath.Client, server: Server) -> None:
    url = f"{server.url}/fields?x=1"
    seen = client.post(url, json={"ä": [1]}, params={"y": "a b"}, headers={"X-A": "1"}).json()
    assert (seen["method"], seen["path"], seen["body"]) == ("POST", "/fields?x=1&y=a+b", '{"Ã¤":[1]}')
    assert ["x-a", "1"] in seen["fields"] and ["content-type", "application/json"] in seen["fields"]
    form = client.put(url, data={"a": ["1", "2"]}).json()
    assert form["body"] == "a=1&a=2"
    assert ["content-type", "application/x-www-form-urlencoded"] in form["fields"]
    assert client.head(f"{server.url}/hello").content == b""
    with pytest.raises(ValueError):
        client.post(url, json=1, content=b"2")


def test_redirects_are_followed_and_bodies_decoded(client: towpath.Client, server: Server) -> None:
    response = client.get(f"{server.url}/redirect/gzip")
    assert response.content == b"squeezed" * 100
    assert response.redirects == [(302, f"{server.url}/gzip")] and response.url.endswith("/gzip")
    assert client.get(f"{server.url}/redirect/hello", redirects=0).status == 302
    raw = client.get(f"{server.url}/gzip", decode=False)
    assert raw.headers["content-encoding"] == "gzip" and raw.content[:2] == b"\x1f\x8b"


def test_bodies_stream_both_ways(client: towpath.Client, server: Server) -> None:
    """An echo of 8 MB: more than all windows together hold, so neither direction may wait for the other's end."""
    pieces = (bytes([number % 251]) * 100_000 for number in range(80))
    with client.stream("POST", f"{server.url}/echo", content=pieces) as response:
        received = b"".join(response)
    assert len(received) == 8_000_000 and received[:100_000] == bytes(100_000)


def test_an_early_answer_ends_an_upload(client: towpath.Client, server: Server) -> None:
    def endless():
        while True:
            yield bytes(65536)

    response = client.post(f"{server.url}/early", content=endless())
    assert (response.status, response.content) == (413, b"big")


def test_what_is_not_read_stays_with_the_server(client: towpath.Client, server: Server) -> None:
    with client.stream("GET", f"{server.url}/pour") as response:
        pieces = iter(response)
        next(pieces)
        before = _settled(lambda: server.poured)
        # The window, two sockets' buffers, and a piece under way: not what a server can send in that time.
        assert before < 12 << 20
        for _ in range(2000):
            next(pieces)
        assert _settled(lambda: server.poured) > before
    _until(lambda: server.open == 0 or server.open < 3)


def test_a_body_that_raises_gives_the_request_up(client: towpath.Client, server: Server) -> None:
    def breaks():
        yield b"some"
        raise KeyError("mine")

    with pytest.raises(KeyError):
        client.post(f"{server.url}/echo", content=breaks())
    assert client.get(f"{server.url}/hello").text == "hello"


def test_a_promise_of_length_is_kept(client: towpath.Client, server: Server) -> None:
    fields = {"content-length": "6"}
    assert (
        client.post(f"{server.url}/fields", content=iter([b"abc", b"def"]), headers=fields).json()["body"] == "abcdef"
    )
    with pytest.raises(towpath.CallerError):
        client.post(f"{server.url}/fields", content=iter([b"abc"]), headers=fields)


def test_trailers_come_after_the_body(client: towpath.Client, server: Server) -> None:
    response = client.get(f"{server.url}/chunks/3")
    assert response.content == b"piece 0\npiece 1\npiece 2\n" and response.trailers["x-sum"] == "7"


@pytest.mark.parametrize(
    ("path", "options", "error", "kind"),
    [
        ("/slow/5", {"first_byte": 0.1, "retries": 0}, towpath.Timeout, "read timeout"),
        ("/slow/5", {"timeout": 0.1}, towpath.Timeout, "read timeout"),
        ("/stall/10", {"gap": 0.1, "retries": 0}, towpath.Timeout, "read timeout"),
        ("/cut/10", {}, towpath.ProtocolError, "protocol"),
        ("/garbage", {}, towpath.ProtocolError, "protocol"),
        ("/redirect/redirect/redirect/hello", {"redirects": 2}, towpath.RedirectError, "redirect"),
    ],
)
def test_errors_say_what_happened(client, server, path, options, error, kind) -> None:
    with pytest.raises(error) as raised:
        client.get(server.url + path, **options)
    assert raised.value.kind == kind
    assert isinstance(raised.value, towpath.Error)


def test_errors_of_connecting(client: towpath.Client) -> None:
    with pytest.raises(towpath.ConnectError) as refused:
        client.get("http://127.0.0.1:1/")
    assert (
        isinstance(refused.value, ConnectionError)
        and refused.value.report["attempts"][0]["outcome"] == "connection refused"
    )
    with pytest.raises(towpath.ResolveError):
        client.get("http://nothing.invalid/", timeout=10)
    for url in ("ftp://a/", "no url", "http://"):
        with pytest.raises(towpath.CallerError):
            client.get(url)
    for options in ({"timeout": -1}, {"repeat": "twice"}, {"priority": "most"}, {"gap": float("nan")}):
        with pytest.raises(ValueError):
            client.get("http://127.0.0.1:1/", **options)
    with pytest.raises(towpath.CallerError):
        client.request("BAD METHOD", "http://127.0.0.1:1/")
    with pytest.raises(towpath.CallerError):
        client.get("http://127.0.0.1:1/", headers={"bad name": "x"})


def test_a_response_larger_than_wanted_is_refused(client: towpath.Client, server: Server) -> None:
    with client.stream("GET", f"{server.url}/bytes/100000") as response, pytest.raises(towpath.TooLargeError):
        response.read(limit=1000)


def test_a_closed_engine_says_so(server: Server) -> None:
    client = towpath.Client()
    client.get(f"{server.url}/hello")
    client.close()
    with pytest.raises(towpath.EngineError):
        client.get(f"{server.url}/hello")


def test_what_is_under_way_when_it_is_closed_goes_on(server: Server) -> None:
    before = _threads()
    client = towpath.Client()
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(client.get(f"{server.url}/slow/0.3").text))
    seen = server.seen["slow"]
    thread.start()
    _until(lambda: server.seen["slow"] > seen)
    client.close()
    thread.join(5)
    assert answers == ["late"]
    _until(lambda: _threads() <= before)


def test_another_thread_can_give_a_request_up(client: towpath.Client, server: Server) -> None:
    with client.stream("GET", f"{server.url}/stall/10") as response:
        pieces = iter(response)
        assert len(next(pieces)) == 10
        threading.Timer(0.1, response.close).start()
        with pytest.raises(towpath.CancelledError):
            next(pieces)


def test_other_threads_run_while_one_waits(client: towpath.Client, server: Server) -> None:
    thread = threading.Thread(target=lambda: client.get(f"{server.url}/slow/0.3"))
    thread.start()
    count = 0
    while thread.is_alive():
        count += 1
    thread.join()
    assert count > 1000


def test_a_signal_interrupts_the_wait(client: towpath.Client, server: Server) -> None:
    """As Ctrl-C does. What a shell runs in the background has it ignored, so the test sees to it itself."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.2, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)).start()
    begin = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            client.get(f"{server.url}/slow/20")
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begin < 5
    assert client.get(f"{server.url}/hello").text == "hello"


def test_no_thread_for_a_request(server: Server) -> None:
    async def main() -> int:
        async with towpath.AsyncClient() as client:
            before = _threads()
            requests = [asyncio.create_task(client.get(f"{server.url}/slow/0.3")) for _ in range(100)]
            await asyncio.sleep(0.1)
            during = _threads()
            await asyncio.gather(*requests)
            return during - before

    # The engine, and the one that asks the kernel what network there is.
    assert asyncio.run(main()) <= 2


def test_requests_to_an_origin_wait_for_one_another(server: Server) -> None:
    with towpath.Client(max_calls_per_origin=1) as client:
        with client.stream("GET", f"{server.url}/stall/10"):
            begin = time.monotonic()
            with pytest.raises(towpath.Timeout) as late:
                client.get(f"{server.url}/hello", timeout=0.2)
            assert late.value.kind == "total timeout" and late.value.report is None
            assert 0.2 <= time.monotonic() - begin < 5
            with pytest.raises(towpath.LimitError):
                client.get(f"{server.url}/hello", turn_timeout=0.1)
            # Another host is another origin; what has no limits does not wait.
            assert client.get(f"http://localhost:{server.port}/hello").text == "hello"
            assert client.get(f"{server.url}/hello", unlimited=True).text == "hello"
        assert client.get(f"{server.url}/hello", timeout=5).text == "hello"


def test_asyncio_and_trio(server: Server) -> None:
    async def main() -> bytes:
        async def pieces():
            for _ in range(80):
                yield bytes(100_000)

        async with towpath.AsyncClient() as client:
            assert (await client.get(f"{server.url}/hello")).text == "hello"
            async with client.stream("POST", f"{server.url}/echo", content=pieces()) as response:
                return b"".join([piece async for piece in response])

    assert len(asyncio.run(main())) == 8_000_000
    assert len(trio.run(main)) == 8_000_000


@pytest.mark.parametrize("run", [lambda main: asyncio.run(main()), trio.run], ids=["asyncio", "trio"])
def test_a_body_that_is_not_wanted_to_its_end_is_closed(server: Server, run: Callable[[Any], Any]) -> None:
    closed = []

    async def pieces():
        try:
            while True:
                yield bytes(100_000)
        finally:
            closed.append("pieces")

    async def main() -> None:
        async with towpath.AsyncClient() as client:
            response = await client.post(f"{server.url}/early", content=pieces())
            assert response.status == 413
            assert closed == ["pieces"]
        async with httpx.AsyncClient(transport=towpath.AsyncTransport()) as client:
            response = await client.post(f"{server.url}/early", content=pieces())
            assert response.status_code == 413
            assert closed == ["pieces"] * 2

    run(main)


def test_a_cancelled_task_gives_its_request_up(server: Server) -> None:
    async def main() -> None:
        async with towpath.AsyncClient() as client:
            task = asyncio.create_task(client.get(f"{server.url}/slow/20"))
            seen = server.seen["slow"]
            while server.seen["slow"] == seen:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await client.get(f"{server.url}/hello")).text == "hello"

    asyncio.run(main())


def test_loops_that_end_leave_no_descriptors(server: Server) -> None:
    async def main(client: towpath.AsyncClient) -> None:
        await client.get(f"{server.url}/hello")

    client = towpath.AsyncClient()
    for _ in range(5):
        asyncio.run(main(client))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        asyncio.run(main(client))
    assert len(os.listdir("/proc/self/fd")) <= before + 3
    client.engine.close()


def _fork(client: towpath.Client, url: str, held) -> None:
    assert client.get(f"{url}/hello").text == "hello"
    del held
    client.close()
    os._exit(0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_begins_with_a_new_engine(client: towpath.Client, server: Server) -> None:
    client.get(f"{server.url}/hello")
    with client.stream("GET", f"{server.url}/stall/10") as held:
        child = multiprocessing.get_context("fork").Process(target=_fork, args=(client, server.url, held))
        child.start()
        child.join(20)
        assert child.exitcode == 0
    assert client.get(f"{server.url}/hello").text == "hello"


def test_memory_outlives_an_engine(server: Server, tmp_path) -> None:
    file = tmp_path / "memory"
    with towpath.Client() as client:
        client.get(f"{server.url}/hello")
        client.engine.save_memory(file)
    with towpath.Client(memory=file) as client:
        assert client.engine.memory_failure is None
        attempt = client.get(f"{server.url}/hello").report["attempts"][0]
        assert attempt["known"]
    file.write_bytes(b"damaged")
    with towpath.Client(memory=file) as client:
        assert "memory" in client.engine.memory_failure
        assert client.get(f"{server.url}/hello").status == 200


def test_without_a_network_it_fails_or_waits(server: Server) -> None:
    with towpath.Client() as client:
        client.engine.network_changed("home", online=False)
        with pytest.raises(towpath.OfflineError):
            client.get("http://192.0.2.1/")
        client.engine.network_changed("home")
        assert client.get(f"{server.url}/hello").status == 200


def test_an_idle_engine_does_not_wake_up(server: Server) -> None:
    with towpath.Client() as client:
        client.get(f"{server.url}/hello")
        # What is left to do of the request may take its time on a busy machine.
        assert any(_sleeps(client.engine, 0.5) for _ in range(20))


def _sleeps(engine: towpath.Engine, seconds: float) -> bool:
    before = engine.wakeups
    time.sleep(seconds)
    return engine.wakeups == before


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _until(is_so, seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.01)


def _settled(count) -> int:
    """A count that has not changed for 0.1 s."""
    was = -1
    while was != count():
        was = count()
        time.sleep(0.1)
    return was

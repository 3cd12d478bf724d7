"""WebSocket, blocking and for event loops: against the tests' own server, and against that of `websockets`."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import struct
import threading
import time
from collections.abc import Iterator

import pytest
import towpath
import trio
from server import Server
from websockets.exceptions import ConnectionClosed
from websockets.sync import server as peers


@pytest.fixture
def client() -> Iterator[towpath.Client]:
    with towpath.Client() as client:
        yield client


@pytest.fixture
def chat(server: Server) -> str:
    server.closes.clear()
    return server.url.replace("http", "ws") + "/chat"


@pytest.fixture
def peer() -> Iterator[str]:
    """A server of `websockets` that sends back what comes; `/cut` ends with 1011."""

    def serve(connection: peers.ServerConnection) -> None:
        try:
            for message in connection:
                if connection.request.path == "/cut":
                    connection.close(1011, "no more")
                connection.send(message)
        except ConnectionClosed:
            pass

    def choose(_: peers.ServerConnection, offered: list[str]) -> str | None:
        return offered[0] if offered else None

    with peers.serve(serve, "127.0.0.1", 0, select_subprotocol=choose, max_size=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join(10)


MESSAGES = ["", "hello", "ä€😀" * 1000, b"", b"\x00\xff", bytes(range(256)) * 4000, "x" * 200_000]


def test_messages_of_both_kinds_come_back(client: towpath.Client, chat: str, server: Server) -> None:
    with client.websocket(chat, subprotocols=["b", "a"], headers={"x-mine": "1"}) as socket:
        assert (socket.subprotocol, socket.is_compressed, socket.close_code) == ("b", False, None)
        assert socket.headers["Sec-WebSocket-Protocol"] == "b"
        for message in MESSAGES:
            socket.send(message)
            assert socket.receive() == message
        socket.send(bytearray(b"ab"))
        socket.send(memoryview(b"cd"))
        assert [socket.receive(), socket.receive()] == [b"ab", b"cd"]
        assert 0 < socket.ping() < 5
        with pytest.raises(TypeError):
            socket.send(1)
        with pytest.raises(UnicodeEncodeError):
            socket.send("\ud800")
    assert (socket.close_code, socket.close_reason) == (1000, "")
    assert server.closes == [struct.pack("!H", 1000)]
    assert [what for _, what in socket.history][0] == "WebSocket: open"
    _until(lambda: socket.report is not None)
    assert socket.report["status"] == 101


def test_a_peer_that_compresses(client: towpath.Client, peer: str) -> None:
    with client.websocket(peer, subprotocols=["chat.v2"]) as socket:
        assert (socket.subprotocol, socket.is_compressed) == ("chat.v2", True)
        for message in MESSAGES:
            socket.send(message)
            assert socket.receive() == message
        assert socket.ping(timeout=5) > 0
        socket.close(4000, "enough", wait=False)
        assert list(socket) == []
        assert (socket.close_code, socket.close_reason) == (4000, "enough")
    with client.websocket(peer, subprotocols=["chat.v1"], compression=False) as socket:
        assert not socket.is_compressed
    with client.websocket(f"{peer}/cut") as socket:
        socket.send("a")
        with pytest.raises(towpath.ClosedError) as closed:
            list(socket)
        assert (closed.value.code, closed.value.reason) == (1011, "no more")


def test_an_iteration_ends_with_the_close(client: towpath.Client, chat: str) -> None:
    with client.websocket(f"{chat}/close/1001/bye") as socket:
        socket.send("go")
        assert list(socket) == [] and list(socket) == []
        with pytest.raises(towpath.ClosedError) as closed:
            socket.receive()
        assert isinstance(closed.value, ConnectionError)
        assert (closed.value.kind, closed.value.code, closed.value.reason) == ("closed", 1001, "bye")
        with pytest.raises(towpath.ClosedError):
            socket.send("more")
        with pytest.raises(towpath.ClosedError):
            socket.ping()
    with client.websocket(f"{chat}/close/4001/wrong") as socket:
        socket.send("go")
        with pytest.raises(towpath.ClosedError, match="4001 wrong"):
            list(socket)


def test_what_was_under_way_can_be_received_behind_a_close(client: towpath.Client, chat: str) -> None:
    socket = client.websocket(chat)
    for number in range(20):
        socket.send(str(number))
    for code in (0, 999, 1004, 1005, 5000):
        with pytest.raises(ValueError):
            socket.close(code)
    socket.close(3000, "done", wait=False)
    with pytest.raises(towpath.ClosedError):
        socket.send("more")
    assert list(socket) == [str(number) for number in range(20)]
    socket.close()
    assert socket.close_code == 3000


def test_errors_of_opening(client: towpath.Client, chat: str, server: Server) -> None:
    with pytest.raises(towpath.StatusError) as refused:
        client.websocket(f"{chat}/refuse/403")
    assert (refused.value.kind, refused.value.status) == ("status", 403)
    with pytest.raises(towpath.StatusError):
        client.websocket(f"{server.url}/hello")
    with pytest.raises(towpath.ConnectError):
        client.websocket("ws://127.0.0.1:1/")
    with pytest.raises(towpath.CallerError):
        client.websocket("ftp://127.0.0.1/")
    with pytest.raises(TypeError):
        client.websocket(chat, colour="red")
    with pytest.raises(ValueError):
        client.websocket(chat, ping_interval=-1)
    with pytest.raises(towpath.Timeout):
        client.websocket(f"{chat}/late/20", timeout=0.2)
    with client.websocket(chat, timeout=0.3) as socket:
        time.sleep(0.6)
        socket.send("still there")
        assert socket.receive() == "still there"


def test_errors_of_what_is_open(client: towpath.Client, chat: str) -> None:
    with client.websocket(f"{chat}/break") as socket:
        socket.send("go")
        with pytest.raises(towpath.DisconnectedError) as broken:
            list(socket)
        assert not isinstance(broken.value, towpath.ClosedError)
    with client.websocket(f"{chat}/fault") as socket, pytest.raises(towpath.ProtocolError) as fault:
        socket.receive()
    assert fault.value.kind == "websocket"
    with client.websocket(chat, max_message_bytes=10) as socket:
        socket.send("x" * 11)
        with pytest.raises(towpath.ProtocolError, match="too long"):
            socket.receive()
    begin = time.monotonic()
    options = {"ping_interval": 0.1, "pong_timeout": 0.1, "close_timeout": 0.1}
    with client.websocket(f"{chat}/silent", **options) as socket, pytest.raises(towpath.Timeout):
        socket.receive()
    assert time.monotonic() - begin < 5


def test_limits_on_time_lose_nothing(client: towpath.Client, chat: str) -> None:
    with client.websocket(chat) as socket:
        for _ in range(3):
            with pytest.raises(TimeoutError) as late:
                socket.receive(timeout=0.05)
            assert isinstance(late.value, towpath.Timeout) and late.value.kind == "read timeout"
        socket.send("a")
        assert socket.receive(timeout=5) == "a"
    with client.websocket(f"{chat}/silent", ping_interval=0, close_timeout=0.1) as socket:
        with pytest.raises(TimeoutError):
            socket.ping(timeout=0.1)
        piece = bytes(1 << 20)
        with pytest.raises(towpath.Timeout) as full:
            for _ in range(100):
                socket.send(piece, timeout=0.2)
        assert full.value.kind == "write timeout"


def test_what_is_not_taken_stays_with_the_server(client: towpath.Client, chat: str, server: Server) -> None:
    with client.websocket(f"{chat}/pour", close_timeout=0.2) as socket:
        assert len(socket.receive()) == 65536
        was = -1
        while was != server.poured:
            was = server.poured
            time.sleep(0.1)
        assert was < 12 << 20
        for _ in range(500):
            socket.receive()
        _until(lambda: server.poured > was)


def test_threads_share_one(client: towpath.Client, chat: str) -> None:
    taken: list[str | bytes] = []
    with client.websocket(chat) as socket:

        def take() -> None:
            for message in socket:
                taken.append(message)

        takers = [threading.Thread(target=take) for _ in range(3)]
        for taker in takers:
            taker.start()
        for number in range(300):
            socket.send(str(number))
        _until(lambda: len(taken) == 300)
        socket.close()
        for taker in takers:
            taker.join(10)
            assert not taker.is_alive()
    assert sorted(taken, key=int) == [str(number) for number in range(300)]


def test_one_that_is_forgotten_is_closed(client: towpath.Client, chat: str, server: Server) -> None:
    socket = client.websocket(chat)
    del socket
    gc.collect()
    _until(lambda: server.closes == [struct.pack("!H", 1001)])
    with pytest.raises(KeyError), client.websocket(chat):
        raise KeyError("mine")
    _until(lambda: server.closes == [struct.pack("!H", 1001)] * 2)


def test_it_is_opened_again_whenever_it_breaks(client: towpath.Client, chat: str, server: Server) -> None:
    server.seen["lasting"] = 0
    lives, came = 0, []
    for socket in client.lasting_websocket(f"{chat}/lasting/2"):
        lives += 1
        socket.send(f"life {lives}")
        for message in socket:
            came.append(message)
            socket.close()
        with pytest.raises(towpath.ClosedError):
            socket.receive()
    assert (lives, came, server.seen["lasting"]) == (3, ["life 3"], 3)
    with client.lasting_websocket(chat) as sockets:
        socket = next(sockets)
        with pytest.raises(TimeoutError):
            socket.receive(timeout=0.1)
        # It is left while it is open: that is the end.
        with pytest.raises(StopIteration):
            next(sockets)
    with pytest.raises(towpath.StatusError):
        next(client.lasting_websocket(f"{chat}/refuse/404"))


def test_asyncio_and_trio(chat: str, peer: str) -> None:
    async def main() -> int:
        count = 0
        async with towpath.AsyncClient() as client:
            for url in (chat, peer):
                async with client.websocket(url) as socket:
                    for message in MESSAGES:
                        await socket.send(message)
                        assert await socket.receive() == message
                    assert await socket.ping() > 0
                    # That of `websockets` answers a close before what came before it.
                    for number in range(10 if url == chat else 0):
                        await socket.send(str(number))
                    await socket.close(4000, "enough", wait=False)
                    async for message in socket:
                        assert message == str(count)
                        count += 1
                assert (socket.close_code, socket.close_reason) == (4000, "enough")
            socket = await client.websocket(f"{chat}/close/1011/over")
            await socket.send("go")
            with pytest.raises(towpath.ClosedError):
                async for _ in socket:
                    pass
            with pytest.raises(towpath.StatusError):
                await client.websocket(f"{chat}/refuse/403")
        return count

    assert asyncio.run(main()) == 10
    assert trio.run(main) == 10


def test_asyncio_opens_again(chat: str, server: Server) -> None:
    async def main() -> tuple[int, list[str | bytes]]:
        server.seen["lasting"] = 0
        lives, came = 0, []
        async with towpath.AsyncClient() as client:
            async for socket in client.lasting_websocket(f"{chat}/lasting/2"):
                lives += 1
                await socket.send(f"life {lives}")
                async for message in socket:
                    came.append(message)
                    await socket.close()
        return lives, came

    assert asyncio.run(main()) == (3, ["life 3"])
    assert trio.run(main) == (3, ["life 3"])


def test_tasks_share_one(chat: str) -> None:
    """Two that send, two that receive, and one that asks, at once."""

    async def main() -> None:
        taken: list[str | bytes] = []
        async with towpath.AsyncClient() as client, client.websocket(chat) as socket:

            async def send(first: int) -> None:
                for number in range(first, 200, 2):
                    await socket.send(str(number))
                    await asyncio.sleep(0)

            async def take() -> None:
                async for message in socket:
                    taken.append(message)

            takers = [asyncio.create_task(take()) for _ in range(2)]
            await asyncio.gather(send(0), send(1), socket.ping(), socket.ping())
            while len(taken) < 200:
                await asyncio.sleep(0.01)
            await socket.close()
            await asyncio.wait_for(asyncio.gather(*takers), 10)
        assert sorted(taken, key=int) == [str(number) for number in range(200)]

    asyncio.run(main())


def test_no_thread_for_a_socket(chat: str) -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    async def main() -> int:
        async with towpath.AsyncClient(max_connections=64) as client:
            before = threads()
            sockets = await asyncio.gather(*(client.websocket(chat) for _ in range(50)))
            for socket in sockets:
                await socket.send("a")
            assert await asyncio.gather(*(socket.receive() for socket in sockets)) == ["a"] * 50
            during = threads()
            await asyncio.gather(*(socket.close() for socket in sockets))
            return during - before

    # The engine, the one that asks the kernel what network there is, and the timer.
    assert asyncio.run(main()) <= 3


def test_a_cancelled_task_loses_no_message_and_leaves_nothing(chat: str, server: Server) -> None:
    async def main() -> None:
        async with towpath.AsyncClient(max_connections=64) as client:
            async with client.websocket(chat) as socket:
                for _ in range(200):
                    task = asyncio.create_task(socket.receive())
                    await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                await socket.send("kept")
                assert await socket.receive() == "kept"
                assert not socket._hub._waiting, "no call waits any more"
            opening = [asyncio.create_task(_enter(client, f"{chat}/late/20")) for _ in range(5)]
            inside = [asyncio.create_task(_enter(client, chat)) for _ in range(5)]
            before = server.seen["late"]
            while server.seen["late"] < before + 5:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            for task in opening + inside:
                task.cancel()
            for outcome in await asyncio.gather(*opening, *inside, return_exceptions=True):
                assert isinstance(outcome, asyncio.CancelledError)
        while server.closes.count(struct.pack("!H", 1001)) < 5 or server.open:
            await asyncio.sleep(0.01)

    _until(lambda: server.open == 0)
    asyncio.run(asyncio.wait_for(main(), 20))


async def _enter(client: towpath.AsyncClient, url: str) -> None:
    async with client.websocket(url) as socket:
        async for _ in socket:
            pass


def _fork(held: list[object]) -> None:
    held.clear()
    gc.collect()
    os._exit(0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_leaves_it_alone(client: towpath.Client, chat: str, server: Server) -> None:
    with client.websocket(chat) as socket, client.lasting_websocket(chat) as sockets:
        held = [socket, sockets, next(sockets)]
        child = multiprocessing.get_context("fork").Process(target=_fork, args=(held,))
        child.start()
        child.join(20)
        assert child.exitcode == 0
        socket.send("still there")
        assert socket.receive() == "still there" and server.closes == []


def _until(is_so, seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.01)

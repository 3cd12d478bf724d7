"""Requests that are given up at any moment, from any side. Seeded; the seed is printed when it fails."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading

import httpx
import pytest
import towpath
from server import Server

PATHS = ["/hello", "/bytes/300000", "/chunks/5", "/slow/0.02", "/stall/1000", "/cut/500", "/pour", "/early", "/garbage"]
SEED = int(os.environ.get("TOWPATH_SEED", "0")) or random.randrange(1, 1 << 30)


@pytest.fixture(autouse=True)
def seed():
    print(f"TOWPATH_SEED={SEED}")
    random.seed(SEED)


def _body(chance: random.Random) -> bytes | None:
    return None if chance.random() < 0.5 else bytes(chance.randrange(200_000))


def test_cancelled_tasks(server: Server) -> None:
    chance = random.Random(SEED)

    async def pieces():
        for _ in range(chance.randrange(30)):
            if chance.random() < 0.1:
                await asyncio.sleep(0.001)
            yield bytes(20_000)

    async def one(client: httpx.AsyncClient) -> None:
        url = server.url + chance.choice([*PATHS, "/echo"])
        content = pieces() if chance.random() < 0.4 else _body(chance)
        async with client.stream("POST", url, content=content) as response:
            async for _ in response.aiter_raw():
                if chance.random() < 0.05:
                    return

    async def main() -> None:
        async with httpx.AsyncClient(transport=towpath.AsyncTransport()) as client:
            for _ in range(25):
                tasks = [asyncio.create_task(one(client)) for _ in range(20)]
                for task in tasks:
                    if chance.random() < 0.5:
                        await asyncio.sleep(chance.random() * 0.004)
                    task.cancel()
                for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                    assert outcome is None or isinstance(outcome, (asyncio.CancelledError, httpx.TransportError)), (
                        outcome
                    )
            assert (await client.get(f"{server.url}/hello")).text == "hello"

    asyncio.run(main())


def test_responses_that_are_closed_or_forgotten(server: Server) -> None:
    client = towpath.Client()
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        chance = random.Random(SEED + number)
        for _ in range(60):
            try:
                # Not in a block: what is not closed is given up by the garbage collector.
                response = client._send("POST", server.url + chance.choice(PATHS), content=_body(chance), gap=0.3)
                closer = threading.Timer(chance.random() * 0.01, response.close)
                if chance.random() < 0.5:
                    closer.start()
                for _ in zip(range(chance.randrange(1, 4)), response, strict=False):
                    pass
                if closer.is_alive():
                    closer.join()
                if chance.random() < 0.1:
                    gc.collect()
            except (towpath.DisconnectedError, towpath.ProtocolError, towpath.CancelledError, towpath.Timeout):
                pass
            except BaseException as error:
                wrong.append(error)
                raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong and not any(thread.is_alive() for thread in threads)
    assert client.get(f"{server.url}/hello").text == "hello"
    client.close()


def test_engines_that_are_closed_under_way(server: Server) -> None:
    chance = random.Random(SEED)

    async def main() -> None:
        for _ in range(40):
            client = towpath.AsyncClient()
            urls = [server.url + chance.choice(PATHS) for _ in range(8)]
            tasks = [asyncio.create_task(client.get(url)) for url in urls]
            await asyncio.sleep(chance.random() * 0.005)
            await client.aclose()
            await asyncio.sleep(chance.random() * 0.005)
            # The last of them ends the engine.
            for task in tasks:
                task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(outcome, (towpath.Error, towpath.AsyncResponse, asyncio.CancelledError)), outcome

    asyncio.run(main())


def test_websockets(server: Server) -> None:
    chance = random.Random(SEED)
    chat = server.url.replace("http", "ws") + "/chat"

    async def one(client: towpath.AsyncClient) -> None:
        path = chance.choice(["", "/break", "/close/1001/a", "/late/0.01", "/pour", "/fault", "/silent", "/refuse/503"])
        async with client.websocket(chat + path, close_timeout=0.1) as socket:
            await socket.send(bytes(chance.randrange(100_000)))
            if chance.random() < 0.3:
                await socket.ping()
            async for _ in socket:
                if chance.random() < 0.2:
                    return

    async def main() -> None:
        async with towpath.AsyncClient(max_connections=64) as client:
            for _ in range(15):
                tasks = [asyncio.create_task(one(client)) for _ in range(20)]
                for task in tasks:
                    if chance.random() < 0.5:
                        await asyncio.sleep(chance.random() * 0.004)
                    task.cancel()
                for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                    assert outcome is None or isinstance(outcome, (asyncio.CancelledError, towpath.Error)), outcome
            async with client.websocket(chat) as socket:
                await socket.send("hello")
                assert await socket.receive() == "hello"

    asyncio.run(main())


def test_memory_does_not_grow(server: Server) -> None:
    """What 2000 requests leave behind, half of them given up: less than a KiB each would make."""

    def resident_kib() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

    def many(client: towpath.Client) -> None:
        for number in range(2000):
            if number % 2:
                client.get(f"{server.url}/hello")
            else:
                client._send("GET", f"{server.url}/bytes/100000").close()

    with towpath.Client() as client:
        many(client)
        gc.collect()
        before = resident_kib()
        many(client)
        gc.collect()
        assert resident_kib() - before < 2000

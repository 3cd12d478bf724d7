"""WebSocket from end to end: a server, and clients that come to it through the proxy.

Arguments: `serve`, which writes its port and serves until standard input ends, or `talk URL`.
"""

import asyncio
import hashlib
import sys

import websockets
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve


async def echo(connection):
    async for message in connection:
        await connection.send(message)


async def run_server():
    async with serve(echo, "127.0.0.1", 0, max_size=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def talk(url, number):
    """Texts, a large binary message, a ping, and a close that both sides agree on."""
    async with connect(url, max_size=None) as connection:
        for turn in range(20):
            text = f"{number}: {turn}"
            await connection.send(text)
            assert await connection.recv() == text
        large = hashlib.sha256(str(number).encode()).digest() * 100_000
        await connection.send(large)
        assert await connection.recv() == large
        await asyncio.wait_for(await connection.ping(), 10)
        # Both directions at once.
        for turn in range(100):
            await connection.send(f"burst {turn}")
        for turn in range(100):
            assert await connection.recv() == f"burst {turn}"
    assert connection.close_code == 1000, connection.close_code


async def run_clients(url):
    await asyncio.gather(*(talk(url, number) for number in range(10)))
    print("talked")


if sys.argv[1] == "serve":
    asyncio.run(run_server())
else:
    asyncio.run(asyncio.wait_for(run_clients(sys.argv[2]), 60))

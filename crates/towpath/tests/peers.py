"""Servers of WebSocket that others wrote. Arguments: `autobahn [CASE…]`, `websockets` or `hypercorn`.

Each writes its port. The first serves Autobahn's cases until their results are asked for, and writes those as JSON:
a list of [case, behaviour, behaviour at the close, detail]. The others send messages back until standard input ends.
"""

import asyncio
import json
import sys


async def autobahn():
    from kosoku import FailureError, run_fuzzingserver

    async with run_fuzzingserver(sys.argv[2:] or None, port=0) as server:
        print(server.port, flush=True)
        try:
            results = await server.get_result()
        except FailureError as failure:
            results = failure.results
    told = [[it.case_id, it.behavior.value, it.behavior_close.value, repr(it)] for it in results]
    print(json.dumps(told), flush=True)


async def websockets():
    from websockets.asyncio.server import serve

    async def echo(connection):
        async for message in connection:
            await connection.send(message)

    async with serve(echo, "127.0.0.1", 0, max_size=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def hypercorn():
    """HTTP/2 by prior knowledge: RFC 8441."""
    import socket

    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    async def app(scope, receive, send):
        if scope["type"] != "websocket":
            return
        await receive()
        await send({"type": "websocket.accept", "subprotocol": f"http{scope['http_version']}"})
        while True:
            event = await receive()
            if event["type"] != "websocket.receive":
                return
            answer = {"type": "websocket.send"}
            for kind in ("text", "bytes"):
                if event.get(kind) is not None:
                    answer[kind] = event[kind]
            await send(answer)

    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.errorlog = None
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

    async def until_ended():
        await ended

    serving = asyncio.create_task(serve(app, config, shutdown_trigger=until_ended))
    while not serving.done():
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            break
        except OSError:
            await asyncio.sleep(0.02)
    print(port, flush=True)
    await serving


asyncio.run({"autobahn": autobahn, "websockets": websockets, "hypercorn": hypercorn}[sys.argv[1]]())

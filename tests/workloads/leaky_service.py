# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A service without PyTorch that keeps 1 MiB for each request, under uvicorn or with asyncio's own server:

    leaky_service.py {uvicorn,asyncio}
"""
import asyncio
import socket
import sys

KEPT = []


def remember():
    KEPT.append(b"x" * (1 << 20))  # GROWS


async def app(_scope, _receive, send):
    remember()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def answer(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    remember()
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
    await writer.drain()
    writer.close()


async def serve(sock):
    server = await asyncio.start_server(answer, sock=sock)
    await server.serve_forever()


listener = socket.create_server(("127.0.0.1", 0))
print("port", listener.getsockname()[1], flush=True)
if sys.argv[1] == "uvicorn":
    import uvicorn
    uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="warning")).run(sockets=[listener])
else:
    asyncio.run(serve(listener))

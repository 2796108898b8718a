# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Many concurrent clients of an HTTP server, each with a persistent connection: answers and response times. Standard library
only; for tests and tools/dev/bench_serve.py."""
import asyncio
import json
import time


class Ask:
    """A request; mark: name for its times, statuses: allowed ones."""

    def __init__(self, method, path, body=None, statuses=(200,), mark=None):
        data = b"" if body is None else json.dumps(body).encode()
        head = "%s %s HTTP/1.1\r\nHost: %%s\r\n" % (method, path)
        if body is not None:
            head += "Content-Type: application/json\r\nContent-Length: %d\r\n" % len(data)
        self.head, self.data = head + "\r\n", data
        self.statuses, self.mark = statuses, mark
        self.what = "%s %s" % (method, path)


class Load:
    def __init__(self, host, port):
        self.host, self.port = host, port
        self.times = {}  # mark -> [s]
        self.statuses = {}  # status -> count
        self.wrong = []  # the first unexpected answers
        self.done = 0
        self.events = 0  # server-sent events

    async def _answer(self, reader):
        """Status, and whether the connection stays open; reads the whole body."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = head.split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while True:
                size = int(await reader.readline(), 16)
                await reader.readexactly(size + 2)
                if not size:
                    break
        elif headers.get("content-length"):
            await reader.readexactly(int(headers["content-length"]))
        return int(lines[0].split()[1]), headers.get("connection", "").lower() != "close"

    async def _client(self, number, asks, count, until):
        reader = writer = None
        for i in range(count):
            if until and time.monotonic() > until:
                break
            ask = asks[(number * 7 + i) % len(asks)]
            begin = time.monotonic()
            try:
                if writer is None:
                    reader, writer = await asyncio.open_connection(self.host, self.port)
                writer.write((ask.head % ("%s:%d" % (self.host, self.port))).encode() + ask.data)
                status, kept = await asyncio.wait_for(self._answer(reader), 60)
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError) as e:
                self._wrong("%s: %s %s" % (ask.what, type(e).__name__, e))
                if writer:
                    writer.close()
                reader = writer = None
                continue
            if ask.mark and status == 200:
                self.times.setdefault(ask.mark, []).append(time.monotonic() - begin)
            self.statuses[status] = self.statuses.get(status, 0) + 1
            self.done += 1
            if status not in ask.statuses:
                self._wrong("%s: status %d" % (ask.what, status))
            if not kept:
                writer.close()
                reader = writer = None
        if writer:
            writer.close()

    def _wrong(self, text):
        if len(self.wrong) < 20:
            self.wrong.append(text)

    async def _listener(self, path, stop):
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(("GET %s HTTP/1.1\r\nHost: %s:%d\r\nAccept: text/event-stream\r\n\r\n" % (path, self.host, self.port)).encode())
        try:
            while not stop.is_set():
                try:
                    line = await asyncio.wait_for(reader.readline(), 0.5)
                except asyncio.TimeoutError:
                    continue
                if not line:
                    self._wrong("%s: the stream has ended" % path)
                    break
                self.events += line.startswith(b"data:")
        finally:
            writer.close()

    async def _all(self, clients, asks, each, seconds, streams):
        stop = asyncio.Event()
        listeners = [asyncio.ensure_future(self._listener(path, stop)) for path in streams]
        until = time.monotonic() + seconds if seconds else 0
        await asyncio.gather(*(self._client(n, asks, each, until) for n in range(clients)))
        stop.set()
        await asyncio.gather(*listeners)

    def run(self, clients, asks, requests=0, seconds=0, streams=()):
        """Runs this many requests in total, or for this long; returns the seconds."""
        begin = time.monotonic()
        each = -(-requests // clients) if requests else 1 << 60
        asyncio.run(self._all(clients, asks, each, seconds, streams))
        return time.monotonic() - begin


def quantile(values, q):
    """The q-quantile of sorted values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None

"""A small site for crawlers: page N links to its children, to its parent, and to pages seen before."""

import asyncio
import threading
import time
from collections import Counter

FAN_OUT = 7


class Site:
    """Serves pages on a free port, in a thread, and counts what was fetched."""

    def __init__(self, pages):
        self.pages = pages
        self.fetched = Counter()
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait()

    def _run(self, started):
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._answer, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        started.set()
        self._loop.run_forever()

    async def _answer(self, reader, writer):
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                path = request.split(b" ", 2)[1].decode()
                body, status = b"none", "404 Not Found"
                if path.startswith("/page/"):
                    number = int(path.removeprefix("/page/"))
                    with self._changed:
                        self.fetched[number] += 1
                        self._changed.notify_all()
                    body, status = self._page(number), "200 OK"
                head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _page(self, number):
        children = range(number * FAN_OUT + 1, number * FAN_OUT + 1 + FAN_OUT)
        links = [child for child in children if child < self.pages]
        links += [number // FAN_OUT, number // 2, (number * 31) % self.pages, number]
        return "".join(f'<a href="/page/{link}">{link}</a>' for link in links).encode()

    def wait_for(self, count, crawler, timeout=600):
        """Waits until so many pages in all were fetched, or the crawler ended."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while self.fetched.total() < count and crawler.poll() is None:
                assert time.monotonic() < deadline, f"{self.fetched.total()} of {count} pages"
                self._changed.wait(1)

    def close(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

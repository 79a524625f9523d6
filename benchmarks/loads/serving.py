"""An asyncio server with an engine in a process of its own; prints its port and ``ready``.

Usage: serving.py. ``GET /generate`` has the engine compute for a tenth of a second; ``GET /wedge`` is a request at
which the engine waits for a lock that nobody gives back; ``GET /metrics`` is the page of metrics, with vLLM's names.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time


class Server:
    """Counts its requests, and hands them to the engine."""

    def __init__(self) -> None:
        self.orders: multiprocessing.Queue[str] = multiprocessing.Queue()
        self.answers: multiprocessing.Queue[int] = multiprocessing.Queue()
        self.pending = self.tokens = 0
        self.waiting: list[asyncio.Future[int]] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        path = (await reader.readline()).split()[1].decode()
        text = ""
        if path == "/metrics":
            text = f"vllm:num_requests_running {self.pending}\nvllm:generation_tokens_total {self.tokens}\n"
        else:
            self.pending += 1
            done = asyncio.get_running_loop().create_future()
            self.waiting.append(done)
            self.orders.put(path)
            self.tokens += await done
            self.pending -= 1
        writer.write(f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
        await writer.drain()
        writer.close()

    def hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand the engine's answers to those that wait for them; a thread of its own."""
        while True:
            tokens = self.answers.get()
            loop.call_soon_threadsafe(self.waiting.pop(0).set_result, tokens)


def engine(orders: multiprocessing.Queue[str], answers: multiprocessing.Queue[int]) -> None:
    """Wait for requests and compute."""
    lock = threading.Lock()
    while True:
        order = orders.get()
        if order == "/wedge":
            lock.acquire()
            lock.acquire()
        until_s = time.monotonic() + 0.1
        while time.monotonic() < until_s:
            pass
        answers.put(10)


async def main() -> None:
    """Serve until killed."""
    server = Server()
    multiprocessing.Process(target=engine, args=(server.orders, server.answers), daemon=True).start()
    threading.Thread(target=server.hand_over, args=(asyncio.get_running_loop(),), daemon=True).start()
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    print("ready", flush=True)
    async with listening:
        await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())

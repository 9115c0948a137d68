"""A server on the loopback that gives recorded replies byte by byte, whatever they have become."""

from __future__ import annotations

import re
import socketserver
import threading
from collections import Counter
from pathlib import Path

URL = "{url}"
"""In a command: where the replies of its folder are served."""
CALL = re.compile(rb"(GET|POST) (/[^ ]*) ")
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
LARGEST_REQUEST_BYTES = 1 << 20


def serve(folder: Path) -> str:
    """Begin to serve ``METHOD_path.N``, the N-th reply to a call, from threads that end with the process; the URL."""
    calls: Counter[str] = Counter()

    class Handler(socketserver.BaseRequestHandler):
        """One connection: one call."""

        def handle(self) -> None:
            """Read the call, send its reply, close."""
            request = _request(self.request)
            match = CALL.match(request)
            name = match and f"{match[1].decode()}{match[2].decode(errors='replace').replace('/', '_')}"
            reply = _reply(folder, str(name), calls)
            calls[str(name)] += 1
            self.request.sendall(reply)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}/v1"


def _request(connection: object) -> bytes:
    received = b""
    while len(received) < LARGEST_REQUEST_BYTES:
        head, end, body = received.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if end and len(body) >= int(length[1] if length else 0):
            return received
        more = connection.recv(65536)  # type: ignore[attr-defined]
        if not more:
            return received
        received += more
    return received


def _reply(folder: Path, name: str, calls: Counter[str]) -> bytes:
    """The next one recorded, the last one again, or that there is none."""
    for number in range(calls[name], -1, -1):
        file = folder / f"{name}.{number}"
        if file.is_file():
            return file.read_bytes()
    return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

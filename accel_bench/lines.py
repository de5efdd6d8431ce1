"""Messages between the processes of a run: one JSON object a line, over a TCP connection."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Mapping
from typing import Any

# A message is a case, an environment or a measurement: no honest one is longer.
_MAX_LINE = 64 << 20


class Line:
    """A connection that speaks in JSON lines; sending is safe from several threads."""

    def __init__(self, connection: socket.socket) -> None:
        """Takes over a connected socket, and has the system find out when its other end is gone."""
        self._socket = connection
        self._file = connection.makefile("rb")
        self._lock = threading.Lock()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A host that lost its network says nothing: ask after 10 s, give up 15 s later.
        for name, value in {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def send(self, message: Mapping[str, Any]) -> bool:
        """Sends a message; False where the other end is gone."""
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            try:
                self._socket.sendall(data)
            except OSError:
                return False
        return True

    def receive(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        """The next message; None where the other end is gone, silent for too long, or talks rot."""
        try:
            self._socket.settimeout(timeout_s)
            line = self._file.readline(_MAX_LINE)
            self._socket.settimeout(None)
            message = json.loads(line) if line.endswith(b"\n") else None
        except (OSError, ValueError):
            return None
        return message if isinstance(message, dict) else None

    def close(self) -> None:
        """Ends the connection; a `receive` that waits returns."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self._file.close()
        self._socket.close()

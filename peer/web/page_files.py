"""The files of the live page, and the policy that a browser holds them to.

The page has no data of its own: it asks the interface, with a token if there must be one. So its files are for all.
"""

from __future__ import annotations

from http import HTTPStatus
from importlib.resources import files
from typing import Final

from ringmq.peer.web.exchanges import HttpCall, Response

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOLDER: Final = "page"
START: Final = "index.html"
HEADERS: Final = (
    "X-Content-Type-Options: nosniff",
    "Referrer-Policy: no-referrer",
    "Cross-Origin-Opener-Policy: same-origin",
    "Cross-Origin-Resource-Policy: same-origin",
    # A page of the version before must not go on with an interface of this one.
    "Cache-Control: no-cache",
)
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src {targets}; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'"
)


class PageFiles:
    """Reads the files once."""

    def __init__(self) -> None:
        folder = files(__package__) / FOLDER
        self._files: dict[str, tuple[str, bytes]] = {}
        for file in folder.iterdir():
            kind = TYPES.get(f".{file.name.rpartition('.')[2]}")
            if kind is not None:
                self._files[f"/{file.name}"] = kind, file.read_bytes()
        self._files["/"] = self._files[f"/{START}"]

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def response(self, call: HttpCall, websocket_port: int | None) -> Response:
        """A file. Its scripts may connect to this server, and to its listener for MQTT over WebSocket."""
        kind, body = self._files[call.path]
        targets = ["'self'"]
        if websocket_port is not None:
            targets.append(f"ws://{_host(call)}:{websocket_port}")
        policy = f"Content-Security-Policy: {POLICY.format(targets=' '.join(targets))}"
        return Response(HTTPStatus.OK, kind, body, (*HEADERS, policy))


def _host(call: HttpCall) -> str:
    """The host of the call without its port, if it can stand in a policy."""
    host = call.header("host")
    name = host[: host.rindex("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
    return name if name and all(sign.isalnum() or sign in ".-_[]:" for sign in name) and name.isascii() else "localhost"

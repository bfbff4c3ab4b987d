"""The site with one page, `/metrics`, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from ringmq.logger.prometheus import CONTENT_TYPE
from ringmq.peer.web.exchanges import READING, HttpCall, RefusedError, Response, check_method
from ringmq.peer.web.http_server import Exchange

PATH: Final = "/metrics"

Page = Callable[[], str]


class MetricsSite:
    """`page` makes the text of the page for each call."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def body_bytes(self, call: HttpCall) -> int:
        if call.path != PATH:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"not found, the only page is {PATH}")
        check_method(call, *READING)
        return 0

    def answer(self, call: HttpCall, body: bytes, exchange: Exchange) -> None:
        exchange.respond(metrics_response(self._page))

    def refused(self, host: str, why: str) -> None:
        """Scrapers see it themselves."""


def metrics_response(page: Page) -> Response:
    return Response(HTTPStatus.OK, CONTENT_TYPE, page().encode())

"""Refused requests, as exceptions and as HTTP responses. Rank 5; needs the `web` extra."""

from __future__ import annotations

from collections.abc import Mapping
from random import uniform

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from aiowheel._printable import cut

#: detail of the refusal of requests while the service shuts down
SHUTTING_DOWN = "the service is shutting down; repeat the request"


class Refusal(Exception):  # noqa: N818 - it becomes a response, not a failure of the service
    """Raised to refuse a request.

    Args:
        status: HTTP status of the response.
        error: One word for programs.
        detail: One sentence for people: the legal range and the value.
        headers: Further headers of the response.
    """

    def __init__(
        self, status: int, error: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, error, detail, headers)
        self.status, self.error, self.detail, self.headers = status, error, detail, headers

    def answer(self) -> JSONResponse:
        """Return the response, with the body `{"error": ..., "detail": ...}`."""
        body = {"error": self.error, "detail": self.detail}
        return JSONResponse(body, self.status, self.headers)


def retry_seconds() -> float:
    """Return a random delay of 1 to 5 seconds, so that clients do not retry all at once."""
    return uniform(1, 5)  # noqa: S311 - no secret


def retry_after() -> dict[str, str]:
    """Return the header `Retry-After` with such a delay."""
    return {"Retry-After": str(round(retry_seconds()))}


def shortened(text: str) -> str:
    """Return *text* for use in a detail: quoted, ASCII only, cut to 60 characters."""
    return ascii(cut(text, 60))


async def answer_refusal(_request: Request, exc: Exception) -> Response:
    """Handle `Refusal`, as an exception handler of Starlette."""
    assert isinstance(exc, Refusal)
    return exc.answer()


async def answer_store_unavailable(request: Request, _exc: Exception) -> Response:
    """Handle `StoreUnavailableError` with a 503.

    The response leaves out the text of the error, which may hold the store's address.
    """
    detail = "the store of the topics is unavailable"
    if request.method != "GET":
        detail += "; the request may have been carried out"
    return Refusal(503, "store_unavailable", detail, retry_after()).answer()


_WORDS = {404: "not_found", 405: "method_not_allowed"}


async def answer_http_exception(request: Request, exc: Exception) -> Response:
    """Handle the errors of Starlette's router, such as an unknown path."""
    assert isinstance(exc, HTTPException)
    detail = f"{request.method} {shortened(request.url.path)}: {exc.detail}"
    error = _WORDS.get(exc.status_code, "bad_request")
    return Refusal(exc.status_code, error, detail, exc.headers).answer()

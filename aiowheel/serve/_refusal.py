"""What a client did wrong, as an exception and as an answer. Rank 5; needs the `web` extra."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response


class Refusal(Exception):  # noqa: N818 - an answer, no failure of ours
    """A request that is not served.

    Args:
        status: HTTP status.
        error: One word for programs.
        detail: One sentence for people: the bad value and the legal range.
        headers: Sent along.
    """

    def __init__(
        self, status: int, error: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, error, detail, headers)
        self.status, self.error, self.detail, self.headers = status, error, detail, headers

    def answer(self) -> JSONResponse:
        """The body is `{"error": ..., "detail": ...}`."""
        body = {"error": self.error, "detail": self.detail}
        return JSONResponse(body, self.status, self.headers)


def shortened(text: str) -> str:
    """*text* as it may stand in a detail: printable, and not longer than a line."""
    return ascii(text if len(text) <= 60 else text[:57] + "...")


async def answer_refusal(_request: Request, exc: Exception) -> Response:
    """Exception handler for `Refusal`."""
    assert isinstance(exc, Refusal)
    return exc.answer()


_WORDS = {404: "not_found", 405: "method_not_allowed"}


async def answer_http_exception(request: Request, exc: Exception) -> Response:
    """Exception handler for what the router itself refuses."""
    assert isinstance(exc, HTTPException)
    detail = f"{request.method} {shortened(request.url.path)}: {exc.detail}"
    error = _WORDS.get(exc.status_code, "bad_request")
    return Refusal(exc.status_code, error, detail, exc.headers).answer()

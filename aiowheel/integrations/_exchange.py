"""A request that a long poll answers, whichever web framework serves it. Rank 4."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import Future, ensure_future
from collections.abc import Callable, Hashable, Iterable
from http import HTTPStatus
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

from aiowheel._arguments import MOST, checked_int
from aiowheel._callbacks import AWAIT_BEFORE, plain_callback
from aiowheel.errors import BadInputError
from aiowheel.integrations._poll import (
    CLIENT_CLOSED_REQUEST,
    REFUSALS,
    Poll,
    called,
    check_purgatory,
)
from aiowheel.integrations._shared_poll import PollResult, SharedPoll
from aiowheel.integrations._version import etag, seen_token, seen_version, version_of
from aiowheel.purgatory import Purgatory
from aiowheel.shared import SharedCounters


class _Headers(Protocol):
    def setdefault(self, key: str, default: str, /) -> object: ...


class _Response(Protocol):
    @property
    def headers(self) -> _Headers: ...


R = TypeVar("R", bound=_Response)


class Exchange(ABC, Generic[R]):
    """A request and its response; each framework has a subclass.

    Args:
        render: Makes a response of a value.
        retry_after: Seconds after which a refused client may try again.

    Raises:
        TypeError, ValueError: An argument is wrong.
    """

    #: The class of the framework's responses.
    response_class: ClassVar[type[Any]]

    def __init__(self, render: Callable[[Any], R], retry_after: int) -> None:
        self._retry_after = checked_int("retry_after", retry_after, 0, MOST)
        plain_callback("render", render, AWAIT_BEFORE)
        self._render = render

    @abstractmethod
    def seen(self) -> tuple[str | None, str | None]:
        """Return the header `If-None-Match` and the query parameter `since`."""

    @abstractmethod
    def response(self, status: int, text: str | None = None) -> R:
        """Return a response with a plain text, or without a body."""

    @abstractmethod
    async def ended(self, watch: Callable[[], Future[Any]]) -> Future[Any] | None:
        """Call *watch*, and return its future once it is done; None if the client disconnects."""

    async def answer(self, purgatory: Purgatory, poll: Poll, keys: Iterable[Hashable]) -> R:
        """See `aiowheel.integrations.asgi.long_poll`."""
        check_purgatory(purgatory)
        found = await self._result(lambda: purgatory.watch(poll, keys))
        response = self.response(HTTPStatus.NO_CONTENT) if found is None else self._rendered(found)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    async def answer_version(
        self,
        purgatory: Purgatory | SharedCounters,
        key: Any,
        version: Callable[..., int] | None,
        answer: Callable[[], object],
        longest: float,
    ) -> R:
        """See `aiowheel.integrations.asgi.long_poll_version`; waits for *longest* seconds."""
        if isinstance(purgatory, SharedCounters):
            poll = SharedPoll(purgatory, key, answer, version)
            return await self._answer_token(purgatory.epoch, poll, longest)
        check_purgatory(purgatory)
        for name, function in (("version", version), ("answer", answer)):
            plain_callback(name, cast(object, function), AWAIT_BEFORE)
        current_version = cast(Callable[[], int], version)
        current = version_of(current_version)
        try:
            seen = seen_version(*self.seen(), current)
        except BadInputError as error:
            return self.response(HTTPStatus.BAD_REQUEST, str(error))
        if seen.version == current:
            news = await self._result(
                lambda: purgatory.wait_until({key: current + 1}, timeout=longest)
            )
            if isinstance(news, self.response_class):
                return cast(R, news)
            # The version may have changed after the timeout in the same loop iteration. The client
            # needs that answer: with its tag alone it would wait for the version after it.
            if not news and version_of(current_version) == current:
                return self._nothing_new(current, conditional=seen.conditional)
        response = self._rendered(called("answer", answer))
        return _versioned(response, version_of(current_version))

    async def _answer_token(self, epoch: str, poll: SharedPoll, longest: float) -> R:
        try:
            seen = seen_token(*self.seen(), epoch)
        except BadInputError as error:
            return self.response(HTTPStatus.BAD_REQUEST, str(error))
        news = await self._result(lambda: ensure_future(poll.news(seen.token, longest)))
        if isinstance(news, self.response_class):
            return cast(R, news)
        token, changed = cast(PollResult, news)
        if not changed:
            return self._nothing_new(token, conditional=seen.conditional)
        found = await poll.read()
        if not isinstance(found, self.response_class):
            token = await poll.tag(found, token)
        return _versioned(self._rendered(found), token)

    async def _result(self, watch: Callable[[], Future[Any]]) -> object:
        """Return the result of the operation, or a 499 or 503 response if it has none."""
        try:
            waiter = await self.ended(watch)
            if waiter is None:
                return self.response(CLIENT_CLOSED_REQUEST)
            if not waiter.cancelled():
                return waiter.result()
        except REFUSALS:
            pass
        refusal = self.response(HTTPStatus.SERVICE_UNAVAILABLE)
        refusal.headers.setdefault("Retry-After", str(self._retry_after))
        refusal.headers.setdefault("Cache-Control", "no-store")
        return refusal

    def _rendered(self, found: object) -> R:
        if isinstance(found, self.response_class):
            return cast(R, found)
        return cast(R, called("render", self._render, found))

    def _nothing_new(self, version: int | str, *, conditional: bool) -> R:
        status = HTTPStatus.NOT_MODIFIED if conditional else HTTPStatus.NO_CONTENT
        return _versioned(self.response(status), version)


def _versioned(response: R, version: int | str) -> R:
    response.headers.setdefault("ETag", etag(version))
    response.headers.setdefault("Cache-Control", "no-cache")
    return response

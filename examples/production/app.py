"""A service of documents whose readers wait for the next version, in any number of workers.

    DATABASE=sqlite:///documents.db uvicorn --workers 4 examples.production.app:app
    DATABASE=postgresql://user@host/name uvicorn --workers 4 examples.production.app:app

Needs FastAPI and the extra `web`; for PostgreSQL the extra `postgres` as well.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request, Response

from aiowheel.integrations.asgi import (
    SlowRequestMiddleware,
    get_shared,
    long_poll_version,
    wheel_lifespan,
)
from aiowheel.shared import SharedCounters
from examples.production.documents import Document, Documents, open_documents

DATABASE = os.environ.get("DATABASE", "sqlite:///documents.db")
MAX_WAITING = 20_000  # polls of one worker; more are answered with 503
MAX_BYTES = 65_536  # of a document


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[dict[str, Any]]:
    """Open the documents and counters of a worker."""
    async with (
        open_documents(DATABASE) as (documents, counters),
        wheel_lifespan("documents", max_pending=MAX_WAITING, counters=counters)(app) as state,
    ):
        yield {**state, "documents": documents}


async def get_documents(request: Request) -> Documents:
    """Return the documents of this worker."""
    documents: Documents = request.state.documents
    return documents


async def get_text(request: Request) -> str:
    """Return the body of a request, up to a maximum size."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BYTES:
            raise HTTPException(413, f"a document has at most {MAX_BYTES} bytes")
    if b"\0" in body:  # PostgreSQL cannot store it in a text
        raise HTTPException(400, "a document must have no NUL character")
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise HTTPException(400, "a document must be UTF-8") from None


app = FastAPI(lifespan=lifespan)
app.add_middleware(SlowRequestMiddleware, idle=10, body=30)

Name = Annotated[str, Path(pattern="^[a-z0-9-]{1,100}$")]
Wait = Annotated[float, Query(ge=0, le=60, description="Seconds to wait for a new version.")]
Token = Annotated[str | None, Query(max_length=100, description="The ETag that the client has.")]


@app.get("/documents/{name}")
async def read(
    request: Request,
    name: Name,
    documents: Annotated[Documents, Depends(get_documents)],
    shared: Annotated[SharedCounters, Depends(get_shared)],
    wait: Wait = 30,
    since: Token = None,  # noqa: ARG001 - `long_poll_version` reads it, FastAPI describes and bounds it
) -> Response:
    """Answer with the document once its version differs from the client's `ETag`."""

    async def answer() -> Document:
        return await documents.read(name)

    return await long_poll_version(
        request,
        shared,
        name,
        answer=answer,
        version=lambda document: document["version"],
        timeout=wait,
        jitter=min(wait, 5),
    )


@app.put("/documents/{name}")
async def write(
    name: Name,
    text: Annotated[str, Depends(get_text)],
    documents: Annotated[Documents, Depends(get_documents)],
) -> int:
    """Change the document, in every worker; answer with its version."""
    return await documents.write(name, text)

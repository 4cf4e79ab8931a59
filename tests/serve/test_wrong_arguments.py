"""Wrong arguments of the classes of `aiowheel.serve` are named at the call."""

import re
from typing import Any

import httpx
import pytest

from aiowheel.errors import AiowheelError
from aiowheel.serve import Access, Limits, TopicApp, serve

from .conftest import Serving

pytestmark = pytest.mark.one_build


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"topics": "10"}, "topics must be an int, got '10'"),
        ({"waiters": 1.5}, "waiters must be an int, got 1.5"),
        ({"waiters": True}, "waiters must be an int, got True"),
        ({"heartbeat": "20"}, "heartbeat must be a number of seconds, got '20'"),
        ({"heartbeat": None}, "heartbeat must be a number of seconds, got None"),
    ],
)
def test_a_limit_of_the_wrong_type_is_refused(arguments: dict[str, Any], text: str) -> None:
    """A fraction would fail when the service starts, in another class."""
    with pytest.raises(TypeError, match=text):
        Limits(**arguments)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"connections": 0}, "connections must be at least 1, got 0"),
        ({"connections": 10**400}, "connections must be at least 1, got 1000"),
        ({"kept_seconds": 10**400}, "kept_seconds must be above 0 and finite, got 1000"),
        ({"heartbeat": float("nan")}, "heartbeat must be above 0 and finite, got nan"),
        ({"heartbeat": float("inf")}, "heartbeat must be above 0 and finite, got inf"),
    ],
)
def test_a_limit_out_of_range_is_refused(arguments: dict[str, Any], text: str) -> None:
    """The error is the same for integers beyond the range of floats."""
    with pytest.raises(ValueError, match=text):
        Limits(**arguments)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"hosts": "example.com"}, "hosts must be a set of strings, got 'example.com'"),
        ({"origins": {3}}, "origins must be a set of strings, got {3}"),
        ({"publish_tokens": "secret-secret-secret"}, "publish_tokens must be a set of strings"),
    ],
)
def test_a_single_string_is_no_set(arguments: dict[str, Any], text: str) -> None:
    """Each of its letters would be a name. The error shows no token."""
    with pytest.raises(TypeError, match=re.escape(text)) as refused:
        Access(**arguments)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"limits": 3}, "limits must be a Limits or None, got 3"),
        ({"access": "all"}, "access must be an Access or None, got 'all'"),
        ({"store": 3}, "store must be a str, got 3"),
    ],
)
def test_an_application_names_its_argument(arguments: dict[str, Any], text: str) -> None:
    """The call itself raises."""
    with pytest.raises(TypeError, match=text):
        TopicApp(**arguments)


async def test_wrong_rules_of_access_change_nothing(serving: Serving) -> None:
    """The service continues with the earlier rules."""
    app = TopicApp()
    earlier = app.access
    wrong: Any = {"hosts": ["x"]}
    async with serving(app) as client:
        with pytest.raises(TypeError, match="access must be an Access or None"):
            app.access = wrong
        answer = await client.post("/topics/a", content="1")

    assert answer.status_code == 201
    assert app.access is earlier


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"host": 5}, TypeError, "host must be a str, got 5"),
        ({"port": 70_000}, ValueError, "port must be from 0 to 65535, got 70000"),
        ({"workers": 0}, ValueError, "workers must be from 1 to .*, got 0"),
        ({"workers": "2"}, TypeError, "workers must be an int from 1 to .*, got '2'"),
    ],
)
def test_the_server_names_its_argument(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """A port out of range would be another one."""
    usual: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "ready": print}
    with pytest.raises(error, match=text):
        serve(TopicApp(), **(usual | arguments))


async def test_an_application_without_its_lifespan_says_so() -> None:
    """Starlette does not run the lifespan of a mounted application."""
    transport = httpx.ASGITransport(TopicApp())
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        with pytest.raises(AiowheelError, match="the lifespan of TopicApp has not run"):
            await client.get("/topics/a")

"""Projects whose own test suites run on our loops, and the needs of each suite.

A suite comes from the source archive of a release, the project itself from its wheel, as users
install it. Each project has its own environment under `build/strangers`, which later runs reuse.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks._postgres import postgres_server
from tests.shared.servers import redis_that_stops

ROOT = Path(__file__).parent.parent.parent
BUILD = ROOT / "build" / "strangers"
#: The requirements of our loops, of the test run, and of the other base loop.
COMMON = (
    *tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"],
    "pytest-timeout",
    "uvloop",
)


@dataclass(frozen=True, slots=True)
class Server:
    """How a suite connects to its server.

    Attributes:
        environment: Variables with the server's address.
        options: Options of pytest with the address.
    """

    environment: dict[str, str] = field(default_factory=dict[str, str])
    options: tuple[str, ...] = ()


@contextmanager
def no_server() -> Generator[Server]:
    """Start nothing: the suite starts its servers itself."""
    yield Server()


@contextmanager
def a_postgres() -> Generator[Server]:
    """Run a PostgreSQL; its clients read the same variables."""
    with postgres_server() as dsn:
        at = urlsplit(dsn)
        database = {"PGUSER": "postgres", "PGDATABASE": "postgres"}
        yield Server({"PGHOST": str(at.hostname), "PGPORT": str(at.port), **database})


@contextmanager
def a_redis() -> Generator[Server]:
    """Run a Redis without modules."""
    with redis_that_stops() as server:
        yield Server(options=(f"--redis-url={server.address}/9",))


@dataclass(frozen=True, slots=True)
class Project:
    """A project and its suite.

    Attributes:
        name: The name on the package index.
        version: The release.
        extras: Extras of the project that its tests need.
        needs: Further requirements of its tests.
        tests: Files and folders of the source archive that pytest receives.
        options: Options that pytest receives.
        server: Runs the server that the tests need.
    """

    name: str
    version: str
    extras: str = ""
    needs: tuple[str, ...] = ()
    tests: tuple[str, ...] = ("tests",)
    options: tuple[str, ...] = ()
    server: Callable[[], AbstractContextManager[Server]] = no_server

    @property
    def source(self) -> Path:
        """Return the folder of the unpacked source archive."""
        return BUILD / f"{self.name}-{self.version}" / "source"

    @property
    def python(self) -> Path:
        """Return the interpreter of the environment."""
        return BUILD / f"{self.name}-{self.version}" / "environment" / "bin" / "python"

    def prepare(self) -> None:
        """Fetch the suite and create the environment, unless an earlier run did."""
        if not self.source.is_dir():
            self._fetch()
        stamp = self.source.with_name("requirements")
        wanted = "\n".join((f"{self.name}{self.extras}=={self.version}", *self.needs, *COMMON))
        if not stamp.exists() or stamp.read_text("utf-8") != wanted:
            environment = self.python.parent.parent
            _run(sys.executable, "-m", "venv", "--clear", environment)
            _run(self.python, "-m", "pip", "install", "--quiet", *wanted.splitlines())
            stamp.write_text(wanted, "utf-8")

    def _fetch(self) -> None:
        """Unpack the source archive without the package: the wheel is under test."""
        self.source.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.source.parent) as folder:
            only_source = ("--no-deps", "--no-binary", self.name, "--dest", folder)
            release = f"{self.name}=={self.version}"
            _run(sys.executable, "-m", "pip", "download", "--quiet", *only_source, release)
            (archive,) = Path(folder).glob("*.tar.gz")
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
            archive.unlink()
            (unpacked,) = Path(folder).iterdir()
            shutil.rmtree(unpacked / self.name.replace("-", "_"), ignore_errors=True)
            unpacked.rename(self.source)


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


PROJECTS = (
    Project(
        "aiohttp",
        "3.14.5",
        "[speedups]",
        needs=(
            *("blockbuster", "freezegun", "gunicorn", "isal", "pkgconfig", "proxy.py"),
            *("pytest-codspeed", "pytest-cov", "pytest-mock", "pytest-xdist", "python-on-whales"),
            *("re-assert", "trustme", "zlib-ng"),
        ),
        # The deselected tests measure time, or need containers.
        options=(
            "-m",
            "not dev_mode",
            "--ignore-glob=*/test_benchmarks_*",
            "--ignore=tests/autobahn",
        ),
    ),
    Project(
        "anyio",
        "4.16.0",
        "[trio]",
        needs=("blockbuster", "exceptiongroup", "hypothesis", "psutil", "pytest-mock", "trustme"),
        options=("-p", "anyio", "-k", "not trio", "-m", "not network"),
    ),
    Project("asyncpg", "0.32.0", needs=("distro",), server=a_postgres),
    Project(
        "httpx",
        "0.28.1",
        "[brotli,cli,http2,socks,zstd]",
        needs=("chardet", "trio", "trustme", "uvicorn"),
        options=("-k", "not trio", "-m", "not network"),
    ),
    Project("pytest-asyncio", "1.5.0", needs=("hypothesis",)),
    Project(
        "redis",
        "8.1.0",
        needs=(
            *("aiohttp", "cryptography", "numpy", "opentelemetry-sdk", "pybreaker", "pyjwt"),
            *("pyopenssl", "pytest-asyncio", "redis-entraid", "requests", "ujson", "xxhash"),
        ),
        tests=("tests/test_asyncio",),
        options=("-o", "asyncio_mode=auto"),
        server=a_redis,
    ),
    Project(
        "starlette",
        "1.10.0",
        "[full]",
        needs=("importlib-metadata", "opentelemetry-sdk", "trio"),
        options=("-k", "not trio"),
    ),
    Project(
        "uvicorn",
        "0.54.0",
        "[standard]",
        needs=("a2wsgi", "cryptography", "httpx2", "pytest-mock", "trustme", "wsproto"),
        options=("--ignore=tests/benchmarks",),
    ),
)

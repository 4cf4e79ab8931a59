"""The fuzz targets by name, their first inputs, and the code that each covers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from struct import pack
from types import MappingProxyType

from . import core, readers, service
from .service import (
    HANDSHAKE,
    HANDSHAKE_FOR,
    HEADERS,
    HOSTS,
    METHODS,
    ORIGINS,
    PARAMETERS,
    PATHS,
    Event,
)

#: Inputs on which a target has failed, in a folder of its name; they stay, as tests.
FAILURES = Path(__file__).parent / "failures"


@dataclass(frozen=True, slots=True)
class Target:
    """One function to feed with bytes.

    Attributes:
        run: Raises if something is wrong.
        seeds: The first inputs.
        modules: The files whose lines the target covers, as globs.
    """

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    modules: tuple[str, ...]

    def folder(self) -> Path:
        """Return the folder of the inputs on which the target has failed."""
        return FAILURES / self.run.__name__

    def failures(self) -> list[Path]:
        """Return these inputs."""
        return sorted(self.folder().glob("*"))


_LOG = b'h - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 1 "-" "x"\n'
_POST = b"POST /topics/news HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi"
_POLL = b"GET /topics/news?since=0&timeout=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
_ABOUT = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
_EVENTS = b"GET /topics/news HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
_OPENING = len(HANDSHAKE)
_CLOSE = b"\x88\x82\0\0\0\0\3\xe8"
#: Frames of a client: text, a ping and a close, text that is no UTF-8, a frame with reserved bits.
_FRAMES = (
    b"\x81\x85\0\0\0\0hello",
    b"\x89\x80abcd" + _CLOSE,
    _CLOSE,
    b"\x81\x84\xfa\0\0\0hbllo",
    b"\xf1\x80abcd",
)
_LAST = "Last-Event-ID: 00000000-5"
_ORIGIN = "Origin: https://a.example.com"
_METHOD = "Access-Control-Request-Method: POST"
_OPERATION = b'{"id":"a","keys":["k"],"thresholds":[1],"mode":"all","created":1,"deadline":2}\n'


def _target(run: Callable[[bytes], None], seeds: Sequence[bytes], *modules: str) -> Target:
    return Target(run, tuple(seeds), tuple(f"aiowheel/{module}" for module in modules))


def _table(form: int, written: int, columns: int, content: bytes, *rules: int) -> bytes:
    """Return an input of the target `table`."""
    return bytes((form, written, 0, columns, *((1, *rules) if rules else (0,)), 0)) + content


#: A column of two texts, the first of them no UTF-8, and a column of the numbers 5 and 6.
_NO_UTF_8 = (1, 1, 255, 1, 65, 0)
_NUMBERS = (0, 5, 1, 6, 1, 2, 0)


def _parquet(names: tuple[int, ...], *columns: tuple[int, ...]) -> bytes:
    """Return what draws a Parquet file of two rows."""
    return bytes((len(names), *names, 2, *chain.from_iterable(columns)))


def _steps(*steps: tuple[Event, int, int]) -> bytes:
    """Return what draws these events, each with a number of bytes and a delay."""
    return bytes((len(steps), *chain.from_iterable((e.value, size, at) for e, size, at in steps)))


def _script(content: bytes, *steps: tuple[Event, int, int]) -> bytes:
    """Return an input of the target `connection`."""
    return bytes(3) + _steps(*steps) + content


def _request(
    method: str,
    path: str,
    *headers: str,
    access: tuple[int, ...] = (0, 0, 0, 0),
    name: str = "",
    query: Mapping[str, str] = MappingProxyType({}),
    body: bytes = b"",
    times: int = 0,
) -> bytes:
    """Return an input of the target `request`: one request."""
    drawn = bytes((*access, 0, METHODS.index(method), PATHS.index(path)))
    if path.endswith("/"):
        drawn += (b"\1" + _text(name)) if name else b"\0"
    drawn += bytes((len(query),))
    drawn += b"".join(bytes((PARAMETERS.index(each),)) + _text(query[each]) for each in query)
    drawn += bytes((len(headers), *(HEADERS.index(header) for header in headers)))
    return drawn + bytes((len(body),)) + body + bytes((times,))


def _text(text: str) -> bytes:
    return len(text).to_bytes(2, "little") + text.encode("latin-1")


_ALL = (
    _target(
        readers.table,
        [
            _table(0, 0, 0, b'key,t\nk,5\n"a\nb",6\nc,7,8\n,9\n\xff,1\nshort\n"d'),
            _table(0, 0, 0, b"key,t\nk,5\nk,6\nl,x\n", 0, 1, 0, 1, 1),  # its latest time is 7
            _table(0, 0, 0, b"key,t\nk,1\nk,9\n", 2, 1, 1),  # strict
            _table(0, 0, 0, b"key,t\nk,1\nk,9\n", 2, 1, 0),
            _table(0, 0, 0, b"key,t\n", 0, 0, 0),
            _table(0, 0, 0, b'"key'),
            _table(1, 0, 0, b'key\tt\nk\t5\n"\t6\n'),
            _table(2, 0, 0, b'{"key":"k","t":5}\n{"conn":[{"id":"a"}],"t":"6"}\n[]\n{\n{"t":{}}\n'),
            _table(2, 0, 1, b'{"host":"h","time":5}\n'),
            _table(2, 0, 3, b'{"conn":[{"id":"a","t":1},{"id":"b","t":2}, 3]}\n{"conn":5}\n'),
            _table(2, 0, 4, b'{"a":{"key":"k","b":{"t":5}}}\n{"a.key":"k","a":{"b":{"t":"6"}}}\n'),
            _table(3, 3, 1, _LOG + b"x\n"),
            _table(
                4,
                0,
                2,
                b"#separator \\x09\n#unset_field\t-\n#fields\tts\tid\n1\ta\n2\n3\t-\n4\tb\t\n",
            ),
            _table(4, 0, 2, b"#open\n1\ta\n"),
            *(bytes((0, 0, 0, 0, 0, cut)) + b"key,t\nk,5\n" for cut in (0, 1)),
            _table(5, 0, 0, b"\0PAR1"),
            *(
                _table(5, 0, 0, bytes((1, *_parquet(names, keys, times))))
                for names, keys, times in product(
                    ((0, 1), (0, 0), (0, 3)),
                    ((0, 3, 1, 4, 1, kind, 0) for kind in (2, 6, 7)),
                    ((0, 5, 1, 6, big, kind, 0) for big in (0, 2) for kind in range(9)),
                )
            ),
            _table(5, 0, 0, bytes((1, *_parquet((0, 1), _NO_UTF_8, _NUMBERS)))),
        ],
        "readers/_records.py",
        "readers/_table.py",
        "readers/_json_paths.py",
        "readers/_parquet.py",
    ),
    _target(
        readers.files,
        [
            bytes([form, 0, path, 0, name, 4, packing]) + b"\12\0key,t\nk,5\n"
            for form, path, name, packing in product((0, 4), (0, 4), range(3), range(2))
        ],
        "readers/_inputs.py",
    ),
    _target(
        readers.pieces,
        [b'\0\5key,t\nk,5\n"a""\nb",6\n', b"\1\5key\tt\nk\t5\n", b'\2\5{"key":"k","t":5}\n'],
        "readers/_pieces.py",
    ),
    _target(
        readers.times,
        [
            b"\0\0\0007",
            b"\1\3\0001.5",
            b"\2\3\0002000-01-02T03:04:05.6+01:00",
            b"\3\0\0[10/Oct/2000:13:55:36 -0700]",
            *(b"\0\0\1" + kind for kind in (b"\0", b"\1\1", b"\2")),
            *(
                bytes((0, unit, 1, 0)) + pack("<d", time)
                for unit in (0, 1)
                for time in (1.5, 2**64)
            ),
        ],
        "readers/_times.py",
    ),
    _target(
        readers.operations,
        [
            b"\0\0\0\0"
            + _OPERATION * 2
            + b'[{"id":7}]\n[{"id":{}},{"keys":[1]}]\n[5]\n{\n5\n\xff\n',
            b"\1\1\0\0" + b'key,time,value\nk,5,1\n"k,5\n\xff,5,1\nk,x,1\n',
            b"\0\1\0\0id,keys,thresholds,mode,created,deadline\na,k|l,1|,any,1,2\n",
            b"\1\1\0\0other\n",
            b"\1\1\0\1k,1,1\n",
            b"\1\1\0\0\xff\n",
            b"\1\1\1\0\0\0\0\0\0key,time,value\nk,5,1\n",
            *(bytes((1, 1, 1, 1, at, 0, 255, 0, 0)) + b"key,time,value\nk,5,1\n" for at in (0, 20)),
            *(
                bytes((1, 2, 0, 1, 0, 231, 3, 0, 0, name)) + _parquet((0, 1), key, time)
                for name, key, time in product(
                    (0, 1),
                    (_NO_UTF_8, (1, 1, 65, 1, 65, 0), (0, 3, 0, 4, 1, 7, 0)),
                    ((0, 3, 0, 4, 1, kind, is_list) for kind in range(9) for is_list in (0, 1)),
                )
            ),
            *(
                bytes((0, 2, 0, 1, 0, 231, 3, 0, 0, 0)) + _parquet((0, 1), _NO_UTF_8, (*keys, 1))
                for keys in (_NO_UTF_8[:-1], (1, 1, 65, 1, 65), _NUMBERS[:-1])
            ),
        ],
        "jobs/operations/rows.py",
    ),
    _target(
        service.connection,
        [
            bytes(4) + _POST + _POLL,
            *(bytes((unix, full, log, 0)) + _POLL for unix, full, log in product((0, 1), repeat=3)),
            _script(_POST, (Event.NOTHING, 10, 2)),
            _script(_POST, (Event.NOTHING, 62, 2)),
            _script(_POST, (Event.NOTHING, 62, 0), (Event.STOP, 0, 0)),
            _script(_ABOUT, (Event.BLOCK, 200, 0), (Event.READ, 0, 2), (Event.UNBLOCK, 0, 0)),
            _script(_ABOUT, (Event.BLOCK, 200, 0), (Event.LOSE, 0, 0)),
            _script(b"?\r\n\r\n", (Event.BLOCK, 200, 0), (Event.READ, 0, 0), (Event.UNBLOCK, 0, 0)),
            _script(b"GET / HTTP/1.1\r\n" + b"x" * 900, (Event.BLOCK, 200, 0)),
            _script(_EVENTS, (Event.BLOCK, len(_EVENTS), 0), (Event.PUBLISH, 0, 2)),
            *(_script(HANDSHAKE + end, (Event.BLOCK, _OPENING, 0)) for end in _FRAMES),
            *(_script(HANDSHAKE + end, (Event.NOTHING, _OPENING, 0)) for end in _FRAMES),
            *(
                _script(HANDSHAKE + end, (Event.NOTHING, len(HANDSHAKE), 0), (Event.PUBLISH, 9, 1))
                for end in _FRAMES
            ),
            bytes(4) + HANDSHAKE_FOR.format("/topics/!").encode(),
        ],
        "serve/_protocol.py",
    ),
    _target(
        service.request,
        [
            _request("POST", "/topics/", name="x" * 20),
            _request("POST", "/topics/", name="!"),
            *(
                _request("GET", "/topics/news", query=query)
                for query in (
                    {"x": "1"},
                    {"timeout": "1"},
                    {"timeout": "6"},
                    {"since": "x"},
                    {"epoch": "0123abcd", "timeout": "0"},
                    {"epoch": "x"},
                )
            ),
            _request("GET", "/topics/news", "Accept: text/event-stream", _LAST),
            _request("GET", "/topics/news", "Accept: text/event-stream"),
            *(
                _request("POST", "/topics/news", "Content-Type: application/json", body=body)
                for body in (b"5", b"{", b"NaN", b"[" * 40, b"\xff")
            ),
            _request("POST", "/topics/news", body="\u2028".encode()),
            *(
                _request("POST", "/topics/news", *headers, body=b"x" * 40, times=times)
                for headers in ((), ("Expect: 100-continue",), ("Transfer-Encoding: chunked",))
                for times in range(3)
            ),
            _request("POST", "/topics/news", "Content-Encoding: gzip"),
            *(
                _request("GET", "/live", *headers, access=(hosts, origins, 0, 0))
                for hosts, origins in product(range(len(HOSTS)), range(len(ORIGINS)))
                for headers in (
                    ("Host: a.example.com",),
                    ("Host: example.com:80", _ORIGIN),
                    ("Sec-Fetch-Site: cross-site",),
                )
            ),
            _request("GET", "/live", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: document"),
            _request("GET", "/live", "Origin: http://localhost"),
            _request("OPTIONS", "/live", _METHOD, _ORIGIN, access=(0, 3, 0, 0)),
            *(
                _request(method, "/topics/news", *headers, access=(0, 0, publish, subscribe))
                for method in ("GET", "POST")
                for publish, subscribe in ((0, 0), (1, 2), (2, 1), (3, 0), (0, 4))
                for headers in ((), ("Authorization: Bearer 0123456789abcdef",))
            ),
        ],
        "serve/_parameters.py",
        "serve/_access.py",
    ),
    _target(
        service.frames,
        [
            *(bytes(3) + frame for frame in _FRAMES),
            *(bytes((token, path, 0)) for token, path in product((0, 1), range(5))),
            bytes((0, 0)) + _steps((Event.STOP, 0, 0)),
            bytes((0, 0)) + _steps((Event.BREAK, 0, 0), (Event.PUBLISH, 0, 0)),
            bytes((0, 0)) + _steps((Event.BLOCK, 0, 0), (Event.PUBLISH, 0, 2)),
        ],
        "serve/_subscription.py",
    ),
    _target(
        core.units,
        [b"\0" + bytes(7) + b"@", *(bytes((kind, 1, 1)) for kind in range(6))],
        "_units.py",
    ),
    _target(
        core.wheel,
        [
            b"\0\6" + bytes(range(60)),
            b"\1\6" + bytes(8) + bytes(range(6, 13)) * 30,
            b"\1\0" + bytes(range(255, 0, -1)),
        ],
        "wheel/_wheel.py",
        "wheel/_level.py",
        "wheel/_bucket.py",
    ),
    _target(core.tokens, [b"\0epoch:5", b"\0a:b:", b"\0:", b"\2", b"\3"], "shared/_tokens.py"),
)
TARGETS = {target.run.__name__: target for target in _ALL}

"""Spark's failures as errors of one line. Rank 5; imports neither PySpark nor Py4J.

Spark reports a failure as a page of Java, a Python traceback inside it, or a broken socket. The
errors here name the cause and the remedy; --verbose prints the page itself on stderr.
"""

import contextlib
import errno
import re
import sys
import traceback
from collections.abc import Generator

from aiowheel.errors import AiowheelError, BadInputError
from aiowheel.jobs.spark.uris import file_name

# Errors that this package raised in a Python worker arrive as text.
_OURS = re.compile(r"^(?:\w+\.)*errors\.(BadInputError|AiowheelError): (.+)$", re.MULTILINE)
# The last line of a Python worker's traceback; Java's lines begin with a blank or a package name.
_PYTHON = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|ArrowInvalid))(?:: (.+))?$", re.MULTILINE)
_CAUSE = re.compile(r"^(?:Caused by: )([\w.$]+): (.+)$", re.MULTILINE)
_FILE = re.compile(r"\[FAILED_READ_FILE[\w.]*\] Encountered error while reading file (\S+)\. ")
_CHECKPOINT_FILE = re.compile(r"(?:Copied|read log file) file:(/.+?)(?: to /|\. )")
_STATE_STORE = re.compile(r"StateStoreId\(opId=(\d+),partId=(\d+)")
_FETCHING = ("pyspark.errors.exceptions.captured", "py4j.protocol")
_FRAME = re.compile(
    r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: |\s*SQLSTATE: \w+$"
)
_UNREACHABLE = re.compile(
    r"(?:Call From \S+ to|(?:Connect|ConnectTimeout|UnknownHost)Exception: \w+ on) "
    r"(\S+?)(?: failed on connection exception)?: "
)
_LONGEST = 300
_PASSING = (
    # A Python worker did not connect within its 10 s. This happens on a busy machine, and Spark has
    # no setting for it.
    "Python worker failed to connect back",
    # The Kafka source of Spark 4.1 reports its delay after each micro-batch. If the first one of a
    # query is a repeated one, the source has not read the end of the topic (SPARK-55271).
    'because the return value of "scala.Option.get()" is null',
    # A query over a Delta table has the columns of its start, and ends when the table gets another
    # one. A restart refuses a table that lacks the columns of the stream.
    "[DELTA_SCHEMA_CHANGED",
)

_SHARED = "another run uses the same checkpoint: start again when that run has ended"
_REMOVED = "Kafka has removed records that the command has not read"
_RETENTION = "raise the retention of the topic, or begin a stream with a new checkpoint"
_ADVICE = {
    "No space left on device": (
        "the disk is full: no room for the output, or for Spark's temporary files "
        "(TMPDIR names another folder for these)"
    ),
    "OutOfMemoryError": "Spark ran out of memory: more with --conf spark.driver.memory=4g",
    "Cannot call methods on a stopped SparkContext": "Spark has stopped: its master ended it",
    "Relative path in absolute URI": "Spark cannot read a file with a colon in its name: rename it",
    "Timed out waiting for a node assignment": (
        "no Kafka broker answers, or it requires TLS or SASL (--kafka-config names a file with "
        "the options of Kafka's client)"
    ),
    "has been shut down": "Spark has stopped: its master ended it",
    "CONCURRENT_STREAM_LOG_UPDATE": _SHARED,
    "Multiple streaming jobs detected for": _SHARED,  # raised for the log of a folder's files
    # A Python worker has only lost its connection; Spark logs the reason elsewhere.
    "in _receive_proto_message": (
        "the state store ended: is the disk full, or Spark out of memory? (--verbose shows the log)"
    ),
}

_REST = r"(.+?)(?: SQLSTATE: \w+)?$"
# The text of a pattern's group replaces the braces.
_CORRECTABLE = (
    (
        re.compile(rf"SaslAuthenticationException: {_REST}", re.MULTILINE),
        "Kafka refused the user or the password: {}",
    ),
    (
        re.compile(rf"SslAuthenticationException: {_REST}", re.MULTILINE),
        "Kafka and its client do not trust each other's certificate: {}",
    ),
    (
        re.compile(r"Failed to load (?:PEM )?SSL keystore (\S+)"),
        "{}: Kafka's client cannot load this keystore or truststore",
    ),
    (
        re.compile(rf"kafka\.common\.config\.ConfigException: {_REST}", re.MULTILINE),
        "Kafka's client refuses its options: {}",
    ),
    (
        re.compile(r"((?:Topic|Group|Cluster)Authorization)Exception: .*"),
        "Kafka does not allow this to the user ({} failed)",
    ),
    (
        re.compile(r"UnknownTopicOrPartitionException"),
        "a Kafka topic that the command reads does not exist",
    ),
    (
        re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (?:file:)?(.+?)\. SQLSTATE: "),
        "{}: no such file or folder",
    ),
    (re.compile(r"UnknownStoreException: `(.+?)'"), "{}: no such bucket"),
    (
        re.compile(r"AccessDeniedException: (\S+): .*NoAuthWithAWSException"),
        "{}: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    (
        re.compile(r"FetchPosition\{.* is out of range for partition (\S+)"),
        f"{_REMOVED} ({{}}): {_RETENTION}",
    ),
    (
        re.compile(r"RecordTooLargeException"),
        "a row is longer than the Kafka topic accepts: raise its max.message.bytes",
    ),
    (re.compile(r"Some data may have been lost because"), f"{_REMOVED}: {_RETENTION}"),
)


@contextlib.contextmanager
def one_line_failures(*, verbose: bool = False) -> Generator[None]:
    """Convert an error of Spark raised inside the block to an error of this package.

    Use it inside the block of a session.

    Args:
        verbose: Whether to print Spark's own text and the traceback on stderr first.

    Raises:
        BadInputError: A worker rejected the input; or the input, or the credentials for it, do not
            exist.
        AiowheelError: Spark, its Java process or the disk reported another error.
        KeyboardInterrupt: Spark failed because it was interrupted.
    """
    try:
        yield
    except AiowheelError:
        raise
    except Exception as error:
        if not _is_spark_error(error):
            raise
        # After an interrupt, PySpark still waits for the end of the job, and then raises Java's
        # error about a reader that is closed.
        if (interrupt := _interrupt_cause(error)) is not None:
            raise interrupt from None
        if verbose:
            traceback.print_exc(file=sys.stderr)
        raise explain_failure(error) from error


def _interrupt_cause(error: BaseException | None) -> KeyboardInterrupt | None:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error


def explain_failure(error: BaseException) -> AiowheelError:
    """Return an error whose text is the cause of the failure, with advice if known."""
    if (text := _text(error)) is None:
        return AiowheelError(f"Spark's Java process ended unexpectedly ({type(error).__name__})")
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return AiowheelError(_ADVICE["No space left on device"])
    if ours := _OURS.findall(text):
        kind, reason = ours[-1]
        return BadInputError(reason) if kind == "BadInputError" else AiowheelError(reason)
    for mark, advice in _ADVICE.items():
        if mark in text:
            return AiowheelError(advice)
    for pattern, reason in _CORRECTABLE:
        if found := pattern.search(text):
            return BadInputError(reason.format(*found.groups()))
    if unreachable := _UNREACHABLE.search(text):
        return AiowheelError(f"{unreachable[1]}: no connection: {_reason(text)[:_LONGEST]}")
    if (place := _damaged_place(text)) is not None:
        return AiowheelError(f"{place}: damaged, and with it the checkpoint")
    if files := _FILE.findall(text):
        reason = " ".join(_reason(text).split())[:_LONGEST]
        return BadInputError(f"{file_name(files[0])}: cannot be read: {reason}")
    if isinstance(error, ConnectionError) or "Py4JNetworkError" in type(error).__name__:
        return AiowheelError("Spark's Java process ended unexpectedly (--verbose shows its log)")
    return AiowheelError(f"Spark failed: {_reason(text)[:_LONGEST]} (--verbose shows the rest)")


def is_passing(error: BaseException) -> bool:
    """Return whether a stream that failed with *error* can go on with a new query."""
    text = _text(error) or ""
    return any(mark in text for mark in _PASSING)


@contextlib.contextmanager
def texts_kept() -> Generator[None]:
    """Let errors of Spark that leave the block keep their texts after the end of the JVM.

    PySpark and Py4J fetch the text of an error from the JVM each time.
    """
    try:
        yield
    except Exception as error:
        _keep_text(error)
        raise


def _keep_text(error: BaseException) -> None:
    """Store the text in *error*, and in the errors during whose handling it was raised."""
    kind = type(error)
    if kind.__module__ in _FETCHING and (text := _text(error)) is not None:
        members = {"__module__": kind.__module__, "__str__": lambda _: text}
        error.__class__ = type(kind.__name__, (kind,), members)
    if error.__context__ is not None:
        _keep_text(error.__context__)


def _text(error: BaseException) -> str | None:
    """Return the text of *error*; None if PySpark cannot fetch it because the JVM has died."""
    try:
        return str(error)
    except Exception:
        return None


def _damaged_place(text: str) -> str | None:
    """Return the checkpoint file that Spark cannot read, or its folder if Spark names no file."""
    if "CANNOT_LOAD_STATE_STORE" in text or "MALFORMED_LOG_FILE" in text:
        if named := _CHECKPOINT_FILE.search(text):
            return named[1]
        if store := _STATE_STORE.search(text):
            return f"state/{store[1]}/{store[2]} in the checkpoint"
        if "EOFException" in text:
            return "a file in the folder state of the checkpoint"
    return None


def _reason(text: str) -> str:
    """Return the innermost cause: Python's if there is one, else Java's, else the first line."""
    if "Traceback (most recent call last)" in text and (raised := _raised_in(text)):
        return ": ".join(filter(None, raised[-1]))
    if causes := _CAUSE.findall(text):
        return str(causes[-1][1])
    return _first_line(text)


def _raised_in(text: str) -> list[tuple[str, str]]:
    """Return the names and texts of the errors that Python raised itself, not Java or PySpark."""
    wrappers = ("Py4J", "PythonException")
    return [found for found in _PYTHON.findall(text) if not found[0].startswith(wrappers)]


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Py4J puts its own line before the Java exception.
    reasons = [line for line in lines if not line.startswith("An error occurred while calling")]
    first = (reasons or lines or ["no reason given"])[0].removeprefix(": ")
    return _FRAME.sub("", first)


def _is_spark_error(error: Exception) -> bool:
    if isinstance(error, OSError):
        return isinstance(error, ConnectionError) or error.errno == errno.ENOSPC
    return type(error).__module__.partition(".")[0] in {"py4j", "pyspark"}

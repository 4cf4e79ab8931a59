"""Spark's pages of Java become one line with the cause and the remedy."""

import errno

import pytest

from aiowheel.errors import AiowheelError, BadInputError
from aiowheel.jobs.spark.failures import explain_failure, one_line_failures

pytestmark = pytest.mark.one_build


class FakeSparkError(Exception):
    """An error that looks like one of PySpark."""


FakeSparkError.__module__ = "pyspark.errors.exceptions.captured"

PYTHON = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/usr/lib/python/worker.py", line 1, in main
aiowheel.errors.BadInputError: a.csv: line 3: the key is empty
"""
ARROW = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [OTHER]
Traceback (most recent call last):
  File "/usr/lib/python/worker.py", line 1, in main
pyarrow.lib.ArrowInvalid: Casting would result in out of bounds

\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:1)
"""
JAVA = """An error occurred while calling o1.save.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.Thing(Thing.scala:1)
Caused by: java.io.IOException: Disk quota exceeded
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""
WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [OTHER]
Traceback (most recent call last):
  File "/usr/lib/python/pyspark/errors/exceptions/captured.py", line 262, in deco
    raise converted from None
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/usr/lib/python/pyspark/worker.py", line 4327, in invoke_udf
    run_process()
"""
BARE = f"""{WORKER}EOFError
 SQLSTATE: 39000
"""
STATE_ENDED = f"""{WORKER}\
  File "/usr/lib/python/pyspark/stateful_processor_api_client.py", line 1, in _receive_proto_message
    length = read_int(self.sockfile)
             ^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python/pyspark/serializers.py", line 604, in read_int
    raise EOFError
EOFError
 SQLSTATE: 39000
"""
SNAPPY = """An error occurred while calling o4.collect.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file \
file:///data/a%20b/trace.x.parquet.  SQLSTATE: KD001
\tat org.apache.spark.Thing(Thing.scala:1)
Caused by: java.io.IOException: FAILED_TO_UNCOMPRESS(5)
"""
GZIP = """An error occurred while calling o1.save.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file \
file:///in/a%20b.csv.gz.  SQLSTATE: KD001
\tat org.apache.spark.Thing(Thing.scala:1)
Caused by: java.io.EOFException: Unexpected end of input stream
"""
UNREADABLE = """py4j.protocol.Py4JJavaError: An error occurred while calling o784.parquet.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file \
file:///in/a%20b.ndjson.gz.  SQLSTATE: KD001
Caused by: java.io.EOFException: Unexpected end of input stream
""".replace("\\\n", "")
STATE_FILE = (
    "[CANNOT_LOAD_STATE_STORE.UNEXPECTED_FILE_SIZE] An error occurred during loading state. Copied "
    "file:/ck/state/0/1/SSTs/8.sst to /tmp/StateStoreId(opId=0,partId=1,name=default)/8.sst"
)
STATE = (
    "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.\n"
    "NoSuchFileException: /tmp/StateStoreId(opId=1,partId=3,name=default)-edb6/metadata"
)
EMPTY_STATE = """[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.
Caused by: java.io.EOFException
"""
LOG_FILE = "Failed to read log file file:/ck/offsets/0. [MALFORMED_LOG_FILE] Log file was malformed"
QUERY = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
NO_NODE = "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment"
NO_HDFS = """An error occurred while calling o1.load.
: java.net.ConnectException: Call From vm/127.0.0.1 to localhost:8020 failed on connection \
exception: java.net.ConnectException: Connection refused; For more details see: http://x
Caused by: java.net.ConnectException: Connection refused
"""
NO_S3 = """An error occurred while calling o115.load.
: java.net.ConnectException: getFileStatus on s3a://lake/ops: software.amazon.awssdk.core.\
exception.SdkClientException: Unable to execute HTTP request: Connect to h:9 failed
Caused by: software.amazon.awssdk.thirdparty.org.apache.http.conn.HttpHostConnectException: \
Connect to h:9 failed: Connection refused
Caused by: java.net.ConnectException: Connection refused
"""
NO_TOPIC = (
    "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host "
    "this topic-partition. SQLSTATE: XXKST"
)
KAFKA = "org.apache.kafka.common"
NO_USER = (
    f"{QUERY}{KAFKA}.errors.SaslAuthenticationException: Authentication failed: Invalid username "
    "or password SQLSTATE: XXKST\nmore"
)
NO_TRUST = f"{KAFKA}.errors.SslAuthenticationException: SSL handshake failed\nmore"
NO_KEYSTORE = (
    f"Caused by: {KAFKA}.KafkaException: Failed to load PEM SSL keystore /nowhere.pem\n"
    "Caused by: java.nio.file.NoSuchFileException: /nowhere.pem\n"
)
NO_OPTION = f"{KAFKA}.config.ConfigException: Invalid value SSLL for configuration x: must be SSL\n"
NO_RIGHT = f"{KAFKA}.errors.TopicAuthorizationException: Not authorized to access topics: [t]\n"
NO_PATH = "[PATH_NOT_FOUND] Path does not exist: s3a://lake/a b. SQLSTATE: 42K03\n"
NO_BUCKET = """An error occurred while calling o115.load.
: org.apache.hadoop.fs.s3a.UnknownStoreException: `s3a://nolake/ops': getFileStatus on \
s3a://nolake/ops: software.amazon.awssdk.services.s3.model.NoSuchBucketException: The specified \
bucket does not exist (Service: S3, Status Code: 404, Request ID: M3)
Caused by: software.amazon.awssdk.services.s3.model.NoSuchBucketException: The specified bucket \
does not exist (Service: S3, Status Code: 404, Request ID: M3)
"""
NO_CREDENTIALS = """An error occurred while calling o115.load.
: java.nio.file.AccessDeniedException: s3a://lake/ops: org.apache.hadoop.fs.s3a.auth.\
NoAuthWithAWSException: No AWS Credentials provided by TemporaryAWSCredentialsProvider
Caused by: software.amazon.awssdk.core.exception.SdkClientException: Unable to load credentials \
from system settings.
"""
REMOVED = """An error occurred while calling o1.collect.
Caused by: org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Fetch position \
FetchPosition{offset=10, currentLeader=x} is out of range for partition ret-0
"""
LOST = (
    f"{QUERY}Some data may have been lost because they are not available in Kafka any more; either"
)
DAMAGED = "damaged, and with it the checkpoint"


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        (SNAPPY, BadInputError, "/data/a b/trace.x.parquet: cannot be read: FAILED_TO_UNCOMPRESS"),
        (f"Traceback (most recent call last):\n{UNREADABLE}", BadInputError, "/in/a b.ndjson.gz: "),
        (f"Traceback (most recent call last):\n{UNREADABLE}", BadInputError, ": Unexpected end"),
        (STATE_FILE, AiowheelError, f"/ck/state/0/1/SSTs/8.sst: {DAMAGED}"),
        (STATE, AiowheelError, f"state/1/3 in the checkpoint: {DAMAGED}"),
        (EMPTY_STATE, AiowheelError, f"a file in the folder state of the checkpoint: {DAMAGED}"),
        (LOG_FILE, AiowheelError, f"/ck/offsets/0: {DAMAGED}"),
        (PYTHON, BadInputError, "a.csv: line 3: the key is empty"),
        (ARROW, AiowheelError, "ArrowInvalid: Casting would result in out of bounds"),
        (BARE, AiowheelError, "Spark failed: EOFError (--verbose"),
        (STATE_ENDED, AiowheelError, "the state store ended: is the disk full, or Spark out of"),
        (JAVA, AiowheelError, "Disk quota exceeded"),
        ("java.io.IOException: No space left on device", AiowheelError, "the disk is full"),
        ("java.lang.OutOfMemoryError: Java heap space", AiowheelError, "spark.driver.memory"),
        ("[OTHER] No, thanks. SQLSTATE: 42K03\n\n", AiowheelError, ": [OTHER] No, thanks. (--ver"),
        (f"{QUERY}Out of luck; SQLSTATE: XXKST\n", AiowheelError, "failed: Out of luck; (--verb"),
        (
            NO_USER,
            BadInputError,
            "the password: Authentication failed: Invalid username or password",
        ),
        (NO_TRUST, BadInputError, "do not trust each other's certificate: SSL handshake failed"),
        (NO_KEYSTORE, BadInputError, "/nowhere.pem: Kafka's client cannot load this keystore"),
        (NO_OPTION, BadInputError, "refuses its options: Invalid value SSLL for configuration x"),
        (NO_RIGHT, BadInputError, "allow this to the user (TopicAuthorization failed)"),
        (f"{QUERY}{NO_NODE}", AiowheelError, "no Kafka broker answers, or it requires TLS or SASL"),
        (NO_HDFS, AiowheelError, "localhost:8020: no connection: Connection refused"),
        (NO_S3, AiowheelError, "s3a://lake/ops: no connection: Connection refused"),
        (NO_TOPIC, BadInputError, "a Kafka topic that the command reads does not exist"),
        (f"{QUERY}{NO_TOPIC}", BadInputError, "a Kafka topic that the command reads does not"),
        (NO_PATH, BadInputError, "s3a://lake/a b: no such file or folder"),
        (NO_PATH.replace("s3a://lake/a", "file:/in/%20"), BadInputError, "/in/%20 b: no such fi"),
        (NO_BUCKET, BadInputError, "s3a://nolake/ops: no such bucket"),
        (NO_CREDENTIALS, BadInputError, "s3a://lake/ops: no credentials: set AWS_ACCESS_KEY_ID"),
        (REMOVED, BadInputError, "Kafka has removed records that the command has not read (ret-0)"),
        (LOST, BadInputError, "Kafka has removed records that the command has not read: raise"),
        ("Relative path in absolute URI: .12:30.crc", AiowheelError, "a colon in its name"),
        (GZIP, BadInputError, "/in/a b.csv.gz: cannot be read: Unexpected end of input stream"),
        (GZIP.replace("file:///", "s3a://b/"), BadInputError, "s3a://b/in/a b.csv.gz: cannot be "),
        ("", AiowheelError, "no reason given"),
    ],
)
def test_the_reason_of_a_failure_is_found(
    text: str, kind: type[AiowheelError], reason: str
) -> None:
    """An error of this package is unchanged; otherwise the innermost cause is found."""
    found = explain_failure(FakeSparkError(text))

    assert type(found) is kind
    assert reason in str(found)
    assert "\n" not in str(found)
    assert "\tat " not in str(found)


def test_a_full_disk_is_explained_for_python_errors() -> None:
    """The result is the same whether Java or Python has raised the error."""
    found = explain_failure(OSError(errno.ENOSPC, "No space left on device"))

    assert str(found).startswith("the disk is full")


def test_an_error_without_text_means_a_dead_java() -> None:
    """PySpark fetches the text of an error from the JVM, which may have died."""

    class MuteError(FakeSparkError):
        def __str__(self) -> str:
            raise ConnectionRefusedError

    assert "Java process ended unexpectedly" in str(explain_failure(MuteError()))
    assert "Java process ended unexpectedly" in str(explain_failure(ConnectionResetError()))


def test_only_sparks_failures_are_explained() -> None:
    """A bug of this package keeps its traceback, an error with its own text keeps the text."""
    with pytest.raises(KeyError), one_line_failures():
        raise KeyError
    with pytest.raises(BadInputError, match=r"^a\.csv$"), one_line_failures():
        raise BadInputError("a.csv")
    with pytest.raises(FileNotFoundError), one_line_failures():
        raise FileNotFoundError


def test_verbose_prints_the_whole_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Spark's own text is printed on stderr."""
    with pytest.raises(AiowheelError, match="Disk quota"), one_line_failures(verbose=True):
        raise FakeSparkError(JAVA)

    assert "FileOutputStream.writeBytes" in capsys.readouterr().err


def test_an_error_after_an_interrupt_is_the_interrupt() -> None:
    """PySpark waits for Java after an interrupt, and then Java reports a broken pipe."""
    with pytest.raises(KeyboardInterrupt), one_line_failures():
        try:
            raise KeyboardInterrupt
        finally:
            try:
                raise FakeSparkError("java.io.IOException: Broken pipe")  # noqa: TRY301
            except FakeSparkError as error:
                raise FakeSparkError("Broken pipe") from error

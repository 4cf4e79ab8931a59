"""Real services on this machine: Kafka from its jars, S3 by moto, and Spark with connectors."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiowheel.errors import AiowheelError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .broker import Broker

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
BUCKET = "wheel"
MANY = 20_000  #: rows, in tests that send more than a few


@pytest.fixture(scope="session")
def broker(needs_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Broker"]:
    """Yield a broker for these tests."""
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    from .broker import Broker

    with Broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """Yield the address of an S3 with one bucket for these tests."""
    pytest.importorskip("moto", reason="moto is not installed")
    import boto3
    from botocore.config import Config

    from benchmarks._ports import free_port

    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    # In its own process, because a server in this process would sleep, which tests may not.
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        client = boto3.client(
            "s3",
            endpoint_url=address,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"total_max_attempts": 20}),  # until the server has started
        )
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield address
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture(scope="session")
def spark(needs_spark: None, s3: str) -> Iterator["SparkSession"]:
    """Yield a session with every connector; skip if they cannot be downloaded."""
    from aiowheel.jobs.spark.connectors import connector_settings
    from aiowheel.jobs.spark.session import open_session

    # A user's settings for an S3 that is not Amazon's.
    s3_settings = {
        "spark.hadoop.fs.s3a.endpoint": s3,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "test",
        "spark.hadoop.fs.s3a.secret.key": "test",
    }
    uris = ["kafka://127.0.0.1:9092/any", f"delta:s3a://{BUCKET}/any"]
    with ExitStack() as stack:
        try:
            conf = connector_settings(uris, s3_settings, avro=True)
            session = open_session(
                "tests", master="local[2]", driver_memory="1g", java_options=QUICK_JVM, conf=conf
            )
            opened = stack.enter_context(session)
        except AiowheelError as error:
            pytest.skip(str(error))
        yield opened


@dataclass(frozen=True)
class Topics:
    """Creates topics for these tests, and sends raw records to them."""

    address: str

    def make(self, name: str, partitions: int = 2) -> str:
        """Create a topic; return its URI."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.address})
        for made in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            made.result(30)
        return f"kafka://{self.address}/{name}"

    def send(self, name: str, values: list[bytes | None]) -> None:
        """Send records without a key."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.address})
        for value in values:
            producer.produce(name, value)
        assert producer.flush(30) == 0

    def send_and_abort(self, name: str, values: list[bytes]) -> None:
        """Send records in a transaction that the producer aborts."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.address, "transactional.id": name})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(name, value)
        producer.flush(30)
        producer.abort_transaction(30)


@pytest.fixture(scope="session")
def topics(broker: "Broker") -> Topics:
    """Return a creator of topics on the broker."""
    return Topics(broker.address)


@pytest.fixture
def bucket(s3: str, tmp_path: Path) -> str:
    """Return the URI of an unused folder in the bucket."""
    return f"s3a://{BUCKET}/{tmp_path.name}"

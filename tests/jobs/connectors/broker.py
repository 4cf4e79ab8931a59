"""A Kafka of one node, from its jars; nothing of it is installed."""

import base64
import contextlib
import os
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from aiowheel.jobs.spark.java import find_java

KAFKA = "4.1.1"
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.voters=1@127.0.0.1:{controller}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.dirs={folder}/log
"""
_START_SECONDS = 60
_STOP_SECONDS = 20


def kafka_jars() -> Path:
    """The folder of Kafka's jars, fetched once by the Ivy that comes with PySpark."""
    import pyspark

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aiowheel"
    jars = cache / f"kafka-{KAFKA}"
    if jars.exists():
        return jars
    cache.mkdir(parents=True, exist_ok=True)
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        target = Path(scratch, "jars")
        # fmt: off
        command: list[str | Path] = [
            _java(), "-jar", ivy, "-cache", Path(scratch, "ivy"), "-confs", "default",
            "-dependency", "org.apache.kafka", "kafka_2.13", KAFKA,
            "-retrieve", f"{target}/[artifact]-[revision].[ext]",
        ]
        # fmt: on
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode or not target.exists():
            pytest.skip(f"org.apache.kafka:kafka_2.13:{KAFKA} cannot be downloaded")
        with contextlib.suppress(OSError):  # another run was quicker
            target.rename(jars)
    return jars


@contextlib.contextmanager
def running_kafka(folder: Path) -> Iterator[str]:
    """Run a broker whose files lie in *folder*; gives its ``HOST:PORT``."""
    classpath = f"{kafka_jars()}/*"
    port, controller = free_ports(2)
    properties = folder / "server.properties"
    properties.write_text(_PROPERTIES.format(port=port, controller=controller, folder=folder))
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    tool: list[str | Path] = [
        _java(),
        "-cp",
        classpath,
        "kafka.tools.StorageTool",
        "format",
        "-t",
        cluster,
    ]
    subprocess.run([*tool, "-c", properties], check=True, capture_output=True, timeout=60)
    flags = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    with (folder / "output").open("wb") as output:
        command: list[str | Path] = [_java(), *flags, "-cp", classpath, "kafka.Kafka", properties]
        broker = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        address = f"127.0.0.1:{port}"
        AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(
            timeout=_START_SECONDS
        )
        yield address
    finally:
        broker.terminate()
        try:
            broker.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            broker.kill()
            broker.wait()


def _java() -> Path:
    return find_java().home / "bin" / "java"


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, of this machine alone."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]

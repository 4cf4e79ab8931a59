"""A single-node Kafka run from its jars, without an installation."""

import base64
import contextlib
import os
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka.admin import AdminClient

from aiowheel.jobs.spark.java import find_java
from benchmarks._ports import free_ports
from tests._certificates import made_certificate

KAFKA = "4.1.1"
_PASSWORD = "wonder land"
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure},\
  CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
controller.quorum.voters=1@127.0.0.1:{controller}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.dirs={folder}/log
listener.name.secure.sasl.enabled.mechanisms=PLAIN
listener.name.secure.plain.sasl.jaas.config=\
  org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{password}";
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={folder}/keystore.pem
"""
_START_SECONDS = 60
_STOP_SECONDS = 20
_CLIENT = """\
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="alice" password="{password}";
ssl.truststore.type=PEM
ssl.truststore.location={certificate}
"""


def kafka_jars() -> Path:
    """Return the folder of Kafka's jars, downloaded once by PySpark's Ivy."""
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
        with contextlib.suppress(OSError):  # a concurrent run was first
            target.rename(jars)
    return jars


class Broker:
    """A broker with its files in *folder*, running inside a with block.

    Attributes:
        address: Its ``HOST:PORT``, which stays the same after a restart.
        secure: The ``HOST:PORT`` of its listener with TLS and passwords.
        certificate: The file of the certificate with which that listener shows who it is.
    """

    def __init__(self, folder: Path) -> None:
        port, secure, controller = free_ports(3)
        self.address = f"127.0.0.1:{port}"
        self.secure = f"127.0.0.1:{secure}"
        self.certificate, key = made_certificate(folder, "broker")
        keystore = folder / "keystore.pem"
        keystore.write_text(key.read_text() + self.certificate.read_text())
        self._properties = folder / "server.properties"
        self._properties.write_text(
            _PROPERTIES.format(
                port=port, secure=secure, controller=controller, folder=folder, password=_PASSWORD
            )
        )
        self._output = folder / "output"
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # One word, because an identifier that begins with a dash would be taken for an option.
        arguments = f"--cluster-id={cluster}", f"--config={self._properties}"
        tool = self._command("kafka.tools.StorageTool", "format", *arguments)
        subprocess.run(tool, check=True, capture_output=True, timeout=60)

    def __enter__(self) -> Self:
        """Start the broker."""
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        """Stop the broker like its own script."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def start(self) -> None:
        """Start the broker, and wait until it responds."""
        flags = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [*self._command(*flags, "kafka.Kafka"), self._properties],
                stdout=output,
                stderr=output,
            )
        client = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        client.list_topics(timeout=_START_SECONDS)

    def client_properties(self, password: str = _PASSWORD) -> str:
        """Return the options of a client of the listener with TLS."""
        return _CLIENT.format(password=password, certificate=self.certificate)

    def kill(self) -> None:
        """Kill the broker with SIGKILL; `start` continues with its stored data."""
        self._process.kill()
        self._process.wait()

    @staticmethod
    def _command(*arguments: str) -> list[str | Path]:
        return [_java(), "-cp", f"{kafka_jars()}/*", *arguments]


def _java() -> Path:
    return find_java().home / "bin" / "java"

# An image for the driver and the executors of Spark, with aiowheel compiled for its Python.
#
#   docker build --tag aiowheel .
#   docker build --tag aiowheel --build-arg SPARK=4.0.2 --build-arg PYTHON=3.13 .
#
# It runs as a pod of Spark on Kubernetes, and any command: `docker run --rm aiowheel aiowheel doctor`.
ARG SPARK=4.1.1
ARG PYTHON=3.12

FROM apache/spark:${SPARK} AS spark

FROM python:${PYTHON}-slim-bookworm AS wheel
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:${PYTHON}-slim-bookworm
ARG SPARK
# What Spark's entry point calls; procps is for its scripts.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gosu procps tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 185 --gid root --home-dir /opt/spark/work-dir spark
COPY --from=spark /opt/java/openjdk /opt/java/openjdk
COPY --from=spark /opt/spark /opt/spark
COPY --from=spark /opt/entrypoint.sh /opt/entrypoint.sh
COPY --from=wheel /wheels /wheels
# The same PySpark as the Spark above: a driver in client mode runs its Python part from here.
RUN pip install --no-cache-dir "pyspark==${SPARK}" "$(ls /wheels/*.whl)[cli,metrics,spark]" \
    && rm -r /wheels
ENV JAVA_HOME=/opt/java/openjdk \
    PATH=/opt/java/openjdk/bin:/opt/spark/bin:$PATH \
    PYSPARK_PYTHON=/usr/local/bin/python3 \
    SPARK_HOME=/opt/spark
# What spark-submit starts: local:///opt/aiowheel/job.py
COPY examples/spark/job.py /opt/aiowheel/job.py
USER 185
WORKDIR /opt/spark/work-dir
ENTRYPOINT ["/opt/entrypoint.sh"]
CMD ["aiowheel", "doctor"]

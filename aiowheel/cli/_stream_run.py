"""How a command runs a stream until its end, or until a signal. Rank 5."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait

from aiowheel.errors import AiowheelError
from aiowheel.jobs.spark.stream_run import StreamRun, Until

_LOOK_SECONDS = 0.5


def run_until_told(run: StreamRun, until: Until, told: threading.Event) -> Until:
    """Run a stream to its end, or until *told* is set.

    Returns:
        Why it ended.

    Raises:
        BadInputError: The checkpoint does not belong to the stream, or a file is bad.
        PySparkException: Spark failed.
    """
    # Waiting for Spark cannot be interrupted without harm, so a thread does it.
    with ThreadPoolExecutor(1) as waiting:
        end = waiting.submit(run.run, until)
        while not (told.is_set() or end.done()):
            wait([end], _LOOK_SECONDS)
        if not end.done():
            run.stop()
    try:
        return end.result()
    except AiowheelError:
        raise
    except Exception:
        if told.is_set():  # a micro-batch that was cut off: the next run repeats it
            return Until.STOPPED
        raise

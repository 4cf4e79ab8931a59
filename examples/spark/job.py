"""Any command of aiowheel as a job of spark-submit.

    spark-submit --master spark://HOST:7077 job.py idle events/ --engine spark ...

The exit code of spark-submit is that of the command.
"""

import sys

from aiowheel.cli import run

sys.exit(run())

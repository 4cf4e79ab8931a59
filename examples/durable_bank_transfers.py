"""Move money exactly once, in a process that is killed again and again.

A transfer is scheduled in the transaction that writes the order, and carried out in the transaction
that acknowledges the fire. `KILLS` sets how often the process is killed, and with it how many
transfers there are.

Prints:
    3 kills
    210 transfers, 1890 left in account a, 210 in account b
"""

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from aiowheel.durable import DurableTimers, Fire, SQLiteStore

KILLS = int(os.environ.get("KILLS", "3"))
TRANSFERS = 70 * KILLS  # about as many as the process carries out between two kills


async def work(path: Path) -> None:
    """Order transfers and carry them out, until all are done."""
    bank = sqlite3.connect(path, timeout=30)
    timers = DurableTimers(SQLiteStore(path), lease=1, max_in_flight=5)

    @timers.handler("transfer")
    async def transfer(fire: Fire) -> None:
        with bank:  # one transaction: both accounts, and the end of the fire
            bank.execute("BEGIN IMMEDIATE")
            bank.execute("UPDATE accounts SET cents = cents - 1 WHERE name = 'a'")
            bank.execute("UPDATE accounts SET cents = cents + 1 WHERE name = 'b'")
            await fire.ack_in(bank)

    async with timers:
        while (ordered := count(bank, "orders")) < TRANSFERS:
            with bank:  # one transaction: the order and its timer
                bank.execute("BEGIN IMMEDIATE")
                bank.execute("INSERT INTO orders DEFAULT VALUES")
                name = f"transfer:{ordered}"
                await timers.schedule_in(bank, name, "transfer", due=timedelta(milliseconds=20))
            await asyncio.sleep(0.001)
        while count(bank, "aiowheel_timers"):  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)


def count(bank: sqlite3.Connection, table: str) -> int:
    """The number of rows."""
    (rows,) = bank.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - fixed names
    return int(rows)


def main(path: Path) -> None:
    """Start the worker, kill it, and start it again."""
    bank = sqlite3.connect(path, timeout=30)
    with bank:
        bank.execute("CREATE TABLE accounts (name TEXT, cents INTEGER)")
        bank.execute("INSERT INTO accounts VALUES ('a', ?), ('b', 0)", (10 * TRANSFERS,))
        bank.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    for kill in range(KILLS + 1):
        worker = subprocess.Popen([sys.executable, __file__, str(path)])  # noqa: S603 - ourselves
        try:
            worker.wait(timeout=random.uniform(0.4, 1.0) if kill < KILLS else None)  # noqa: S311
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    print(f"{KILLS} kills")
    left, moved = (cents for (cents,) in bank.execute("SELECT cents FROM accounts ORDER BY name"))
    orders = count(bank, "orders")
    bank.close()
    print(f"{orders} transfers, {left} left in account a, {moved} in account b")


if sys.argv[1:]:
    asyncio.run(work(Path(sys.argv[1])))
else:
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder) / "bank.db")

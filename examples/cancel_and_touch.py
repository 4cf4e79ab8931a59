"""Postpone a deadline for every message, as a server does, without any work in the wheel.

Prints:
    100,000 messages, 100,000 touches, 1 timer
    cascaded: 0
    no message for 30 s: connection lost
"""

import aiowheel

timer = aiowheel.ManualTimer()  # time passes only in advance()
lost = timer.call_later(30.0, print, "no message for 30 s: connection lost")
for _ in range(100_000):
    lost.touch()  # a message came in: the deadline is 30 s from now again
counts = timer.statistics()
print(f"{counts.rescheduled:,} messages, {counts.rescheduled:,} touches, {len(timer)} timer")
print("cascaded:", counts.cascaded)
timer.advance(30.0)

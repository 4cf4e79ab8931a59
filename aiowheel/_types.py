"""The types of public arguments, as type checkers see them. Rank 0.

Every alias is `object` to mypyc: the build hook (hatch_build.py) compiles against this module with
its aliases replaced. Compiled code would otherwise check the argument before the package does, and
raise an error that names neither the argument nor its legal range. A function that takes one of
these types therefore checks the value itself, and both builds raise the same text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from datetime import timedelta  # the module takes 1.5 ms to import on Python 3.11

#: A stretch of time: seconds, or a timedelta.
Delay: TypeAlias = "float | timedelta"
if not TYPE_CHECKING:
    Delay = object  # `typing.get_type_hints` cannot evaluate the name of a missing import
#: A count of something.
Count: TypeAlias = int
#: A time or deadline in the unit of a passive wheel.
Ticks: TypeAlias = int
#: The value of a counter: an offset, a version, a high watermark.
Value: TypeAlias = int | float
#: A name that appears in statistics, log events and traces.
Name: TypeAlias = str
#: The clock of a timer: with or without the time for which the machine was suspended.
Clock: TypeAlias = Literal["monotonic", "boottime"]
#: The treatment of missed ticks of a periodic call; see `Timer.every`.
Missed: TypeAlias = Literal["skip", "burst", "delay"]
#: The treatment of pending operations at closing; see `Purgatory.aclose`.
Drain: TypeAlias = Literal["expire", "cancel", "wait"]
#: How many of several thresholds must be reached; see `Purgatory.wait_until`.
Mode: TypeAlias = Literal["all", "any"]
#: A share of a whole, from 0 to 1.
Share: TypeAlias = float
#: A choice between two.
Switch: TypeAlias = bool

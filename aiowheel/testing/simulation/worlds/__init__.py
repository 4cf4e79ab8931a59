"""Worlds for the parts of this library, which are also examples of worlds. Rank 4."""

_HERE = "aiowheel.testing.simulation.worlds"

#: The address of each world by its name on the command line.
WORLDS = {
    "timer": f"{_HERE}._timer:TimerWorld",
    "shared-timer": f"{_HERE}._timer:SharedTimerWorld",
    "purgatory": f"{_HERE}._purgatory:PurgatoryWorld",
    "counters": f"{_HERE}._counters:CountersWorld",
    "wheel-loop": f"{_HERE}._wheel_loop:WheelLoopWorld",
    "shared": f"{_HERE}._shared:SharedWorld",
    "idle": f"{_HERE}._idle:IdleWorld",
}

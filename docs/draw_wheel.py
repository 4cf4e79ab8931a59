"""Draw docs/images/wheel.svg: a timing wheel that turns, from the states of a real one.

    python docs/draw_wheel.py

The wheel has a load like a server's for 256 ticks: timeouts are armed, most are cancelled, some
fire. After each tick it reports how full each bucket is, and that is what the picture shows.
tests/docs/test_wheel_picture.py draws it again and compares.
"""

import math
import random
from pathlib import Path

from aiowheel import TimerEntry, TimingWheel, WheelStatistics

SIZE, TICKS, SECONDS_A_TICK = 16, 256, 0.125
TURN = TICKS * SECONDS_A_TICK
STILL = 100  # the tick shown where the reader has turned animations off
CENTRES = ((150, 150), (470, 150))
State = tuple[list[list[int]], WheelStatistics]


def states() -> list[State]:
    """Drive a wheel through the load; return its buckets and counts after each tick."""
    rng = random.Random(7)
    wheel = TimingWheel(tick=1, wheel_size=SIZE)
    to_cancel: dict[int, list[TimerEntry]] = {}
    found: list[State] = []
    for now in range(TICKS):
        for _ in range(80 if now == 0 else int(7 * rng.random())):
            delay = 2 + int(160 * rng.random() ** 2)
            if now + delay < TICKS:
                entry = wheel.schedule(now + delay)
                answered = now + 1 + int(1.6 * delay * rng.random())
                to_cancel.setdefault(answered, []).append(entry)
        wheel.advance(now)
        for entry in to_cancel.pop(now, []):
            entry.cancel()  # False for one that has fired
        levels = [list(level.counts) for level in wheel.occupancy(6)]
        found.append(([*levels, [0] * SIZE][:2], wheel.statistics()))
    return found


def share(count: int) -> str:
    """Return how strongly a bucket with *count* entries shines."""
    return f"{0.1 if not count else 0.25 + count / 8:.2f}".rstrip("0")


def keyframes(name: str, counts: list[int]) -> str:
    """Return the animation of one bucket: a keyframe for each change."""
    changes = [i for i in range(TICKS) if i == 0 or counts[i] != counts[i - 1]]
    steps = "".join(f"{100 * i / TICKS:.4g}%{{opacity:{share(counts[i])}}}" for i in changes)
    return (
        f"@keyframes {name}{{{steps}}}\n.{name}{{animation:{name} {TURN:g}s step-end infinite}}\n"
    )


def sector(level: int, place: int) -> str:
    """Return the outline of one bucket, first bucket at twelve o'clock, then clockwise."""
    x, y = CENTRES[level]
    first, last = (math.tau * (place + at) / SIZE for at in (0.06, 0.94))
    corners = [(110, first), (110, last), (62, last), (62, first)]
    a, b, c, d = (f"{x + r * math.sin(w):.1f} {y - r * math.cos(w):.1f}" for r, w in corners)
    return f"M{a}A110 110 0 0 1 {b}L{c}A62 62 0 0 0 {d}z"


def draw(found: list[State]) -> str:
    """Return the whole picture."""
    css, shapes = "", ""
    for level, (x, y) in enumerate(CENTRES):
        for place in range(SIZE):
            name = f"b{level}-{place}"
            css += keyframes(name, [buckets[level][place] for buckets, _ in found])
            still = share(found[STILL][0][level][place])
            shapes += f'<path class="{name}" opacity="{still}" d="{sector(level, place)}"/>\n'
        turn = f"turn {TURN / SIZE ** (1 - level):g}s steps({SIZE}) infinite"
        angle = 360 * (STILL // SIZE**level % SIZE) / SIZE
        shapes += (
            f'<g style="transform-origin:{x}px {y}px;transform:rotate({angle:g}deg);'
            f'animation:{turn}"><path class="hand" d="M{x} {y}V{y - 56}" '
            f'transform="rotate({180 / SIZE:g} {x} {y})"/></g>\n'
            f'<text x="{x}" y="285">level {level}: a bucket is {SIZE**level} tick'
            f"{'s' if level else ''}</text>\n"
        )
    for tick in range(0, TICKS, 4):
        counts, shown = found[tick][1], " still" if tick == STILL else ""
        shapes += (
            f'<text class="now{shown}" style="animation-delay:{tick * SECONDS_A_TICK - TURN:g}s" '
            f'x="310" y="322">tick {tick}: {counts.pending} pending, {counts.cancelled} cancelled, '
            f"{counts.expired} fired</text>\n"
        )
    return TEMPLATE.replace("/*css*/", css).replace("<!--shapes-->", shapes)


TEMPLATE = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 620 340" role="img">
<title>A timing wheel turns: buckets fill, empty, and cascade from level 1 to level 0</title>
<style>
path{{fill:#5ad1b5}}text{{fill:#c9d4e3;font:15px system-ui,sans-serif;text-anchor:middle}}
.hand,.arrow{{stroke:#ffb454;stroke-width:4;stroke-linecap:round;fill:none}}
.now{{fill:#fff;opacity:0;animation:now {TURN:g}s step-end infinite}}
.cascade{{animation:cascade {TURN / SIZE:g}s step-end infinite}}.cascade text{{fill:#ffb454}}
@keyframes now{{0%{{opacity:1}}{400 / TICKS:g}%{{opacity:0}}}}
@keyframes cascade{{0%{{opacity:1}}20%{{opacity:.15}}}}
@keyframes turn{{from{{transform:rotate(0)}}to{{transform:rotate(360deg)}}}}
/*css*/@media(prefers-reduced-motion:reduce){{*{{animation:none!important}}.still{{opacity:1}}}}
</style>
<rect width="620" height="340" rx="14" fill="#161b24"/>
<g class="cascade"><path class="arrow" d="M338 150H284m10 -8l-10 8l10 8"/>
<text x="311" y="132">cascade</text></g>
<!--shapes--></svg>
"""


if __name__ == "__main__":
    (Path(__file__).parent / "images/wheel.svg").write_text(draw(states()), encoding="utf-8")

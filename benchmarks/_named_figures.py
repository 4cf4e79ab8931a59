"""The output of a benchmark without sides: named figures, printed and as JSON."""

import argparse
import json
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json FILE`, for `publish_figures`."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")


def publish_figures(measure: Callable[[], Mapping[str, object]], file: Path | None) -> None:
    """Measure, print the figures and those of the machine, and write them to *file* as JSON.

    Args:
        measure: Returns the figures by name; a mapping among them is printed as a section.
        file: None writes no file.
    """
    figures: dict[str, object] = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        **measure(),
        "load_after": round(os.getloadavg()[0], 2),
    }
    for name, value in figures.items():
        if isinstance(value, Mapping):
            print(name)
            for what, figure in value.items():
                print(f"  {what:<26} {figure}")
        else:
            print(f"{name:<28} {value}")
    if file is not None:
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")

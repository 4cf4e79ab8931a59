"""The programs beside this file are imported by their names, as they import each other."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

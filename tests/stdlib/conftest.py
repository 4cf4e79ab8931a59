"""Put this folder on the import path, so that its programs are imported by their names."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

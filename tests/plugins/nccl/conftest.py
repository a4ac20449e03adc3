"""Makes the double importable: the tests are imported without their folder on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

"""The modules beside these tests are also a program's, which imports them by name, as the ranks do."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

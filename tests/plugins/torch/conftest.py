"""These tests need torch, which is too large for the environment of all others: `scripts/test` makes one for them."""

import sys
from importlib.util import find_spec
from pathlib import Path

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]

sys.path.insert(0, str(Path(__file__).parent))

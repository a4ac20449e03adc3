"""Starting ranks, and looking at where they start: `spawn`, and the commands `run`, `demo`, `backends`, `doctor`."""

from rankwise.backends import require_series

require_series("rankwise-launch", "0.1")

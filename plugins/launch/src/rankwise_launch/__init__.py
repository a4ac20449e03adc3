"""Starting the ranks of a job, and looking at where they start: `rankwise run`, `demo`, `backends` and `doctor`."""

from rankwise.backends import require_series

require_series("rankwise-launch", "0.1")

"""Jobs whose ranks come and go; programs find `rankwise_elastic.elastic` as `rankwise.elastic`.

It is made of the core's public calls: `dist.reconfigure` makes the group of each epoch, and the job's store is where
processes agree who is in it (`rounds.py`, which has no sockets, threads or clocks).
"""

import rankwise
from rankwise.backends import require_series

require_series("rankwise-elastic", "0.1")
rankwise.skip_callers("rankwise_elastic")

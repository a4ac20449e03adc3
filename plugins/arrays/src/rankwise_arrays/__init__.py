"""NumPy first: calls that return arrays, grids with halos, prepared calls, waits for several works, pools and channels.

Everything is made of the public calls of rankwise, so that it runs on every backend, also on those of others.
"""

import rankwise
from rankwise.backends import require_series

require_series("rankwise-arrays", "0.1")
rankwise.skip_callers("rankwise_arrays")

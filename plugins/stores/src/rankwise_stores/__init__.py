"""Where processes meet other than over TCP: files that they share, and the stores of other libraries.

The core has the names that programs use, `FileStore` and `as_store`, and finds what is here by the entry points of the
group `rankwise.parts`.
"""

from rankwise.backends import require_series

require_series("rankwise-stores", "0.1")

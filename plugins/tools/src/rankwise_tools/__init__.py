"""For looking at jobs: `top`, `trace`, `bench`, `explain`, and exporters of figures."""

from rankwise.backends import require_series

require_series("rankwise-tools", "0.1")

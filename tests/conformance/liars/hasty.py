"""A plugin of pytest: fast runs of the kit have hardly any time."""

import rankwise_testing.suite.plugin as suite

suite.FAST_WALL_S = 14.0

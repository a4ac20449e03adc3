"""Imported before all else: what belongs to one MAJOR.MINOR of the core does not run beside another."""

from rankwise.backends import require_series

require_series("rankwise-testing", "0.1")

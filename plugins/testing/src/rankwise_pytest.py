"""Gives pytest the options of the conformance suite: in the runs that are about it, and in no other.

pytest reads options before it looks for packages, so a `conftest.py` in the suite would come too late. This module is
all that other runs load, and it imports nothing.
"""

SUITE = "rankwise_testing.suite"


def pytest_load_initial_conftests(early_config, parser, args):  # type: ignore[no-untyped-def]
    """Add the suite's options and fixtures if one of the arguments is the suite."""
    if any(SUITE in str(arg).replace("/", ".") for arg in args):
        early_config.pluginmanager.import_plugin(f"{SUITE}.plugin")

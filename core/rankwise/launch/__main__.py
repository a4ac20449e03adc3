"""`python -m rankwise.launch`: the older command line, which `rankwise-launch` brings."""

import sys

from rankwise.basics.entry_points import part
from rankwise.cli import NOT_INSTALLED
from rankwise.errors import PluginError

if __name__ == "__main__":
    try:
        older = part("older_command_line", "rankwise-launch")
    except PluginError as error:
        print(f"python -m rankwise.launch: {error}", file=sys.stderr)
        sys.exit(NOT_INSTALLED)
    sys.exit(older())

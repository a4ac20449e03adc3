"""`python -m rankwise_launch`: the older command line, for scripts that take `--local_rank`."""

import sys

from rankwise_launch.run_command import older

if __name__ == "__main__":
    sys.exit(older())

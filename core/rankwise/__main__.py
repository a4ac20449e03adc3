"""`python -m rankwise`: the command `rankwise` where the script is not on the PATH."""

import sys

from rankwise.cli import main

if __name__ == "__main__":
    sys.exit(main())

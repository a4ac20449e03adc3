"""`rankwise secret`: make a job secret."""

from __future__ import annotations

import argparse

from rankwise_network import secret

DESCRIPTION = """\
Make a job secret: 32 random bytes that the processes of a job use to recognise each other. `rankwise run` makes a
secret for each job on a single node; for a job on several nodes, make one and copy it to all of them."""

EXAMPLES = """\
example:
  rankwise secret new job.secret
  export RANKWISE_SECRET_FILE=$PWD/job.secret     # on every node, after copying the file there"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("action", choices=["new"], help="make a new secret")
    parser.add_argument("file", metavar="FILE", help="where to write the secret; the file must not exist yet")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    try:
        secret.new_file(options.file)
    except FileExistsError as error:
        raise FileExistsError(f"{options.file} is there already, and is left as it is; choose another name") from error
    except OSError as error:
        raise OSError(f"cannot write {options.file}: {error.strerror}") from error
    print(f"{options.file}: a new job secret, which only you can read; RANKWISE_SECRET_FILE={options.file} uses it")
    return 0

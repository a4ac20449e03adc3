"""All kinds of tensors that torch has, in all calls: each is right or refused in clear words, never garbage."""

import kind_programs as programs
from ranks import run


def test_every_call():
    """As input and as output, without anybody waiting for the works."""
    run(programs.every_call)

"""After Ctrl-C each rank says one line: where its program was."""

import os
import re
import signal

import pytest
from tests import warm
from tests.core.launch_programs import be_interrupted, ranks_of

from rankwise_launch.output import Fold

PATIENCE_S = 30.0

TRACEBACK = b"""\
Traceback (most recent call last):
  File "/home/me/train.py", line 9, in <module>
    main()
  File "/home/me/train.py", line 7, in main
    dist.all_reduce(array)
    ^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3/site-packages/rankwise/calls/collectives.py", line 154, in all_reduce
    return finish(pg, work, tensor, async_op)
KeyboardInterrupt"""


def shown(text):
    fold = Fold()
    return [line for given in text.split(b"\n") for line in fold.take(given)] + fold.rest()


def test_the_traceback_of_an_interrupt_becomes_a_line():
    assert shown(TRACEBACK) == [b"KeyboardInterrupt at train.py:7: dist.all_reduce(array)"]


CHAINED = b"""\
Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/rankwise/network/x.py", line 3, in reach
    sock.connect(address)
ConnectionRefusedError: [Errno 111] Connection refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/me/train.py", line 5, in <module>
    dist.init_process_group("gloo")
  File "/usr/lib/python3/site-packages/rankwise/groups/lifecycle.py", line 105, in init_process_group
    begin(world, plan, deadline)
rankwise.errors.DistNetworkError: rank 0, which served the store, is gone"""


def test_what_a_rank_says_that_misses_an_interrupted_one_becomes_a_line_too():
    line = b'DistNetworkError at train.py:5: dist.init_process_group("gloo")'
    assert shown(CHAINED) == [line]
    assert shown(CHAINED + b"\nanother line\n" + TRACEBACK)[:2] == [line, b"another line"]


@pytest.mark.parametrize(
    "text",
    [
        CHAINED.replace(b"rankwise.errors.Dist", b"library."),
        b"a line\n  and another",
        b'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    1 / 0\nZeroDivisionError: none',
        b'Traceback (most recent call last):\n  File "a.py", line 1, in <module>',
    ],
)
def test_everything_else_stays(text):
    assert shown(text) == text.split(b"\n")


def test_what_has_no_places_stays_an_interrupt():
    assert shown(b"Traceback (most recent call last):\nKeyboardInterrupt") == [b"KeyboardInterrupt"]


@pytest.mark.parametrize(("level", "lines"), [("off", 3), ("detail", None)])
def test_each_rank_says_a_line_after_ctrl_c(tmp_path, level, lines):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RANKWISE_")}
    words = ["-m", "rankwise", "run", "-n", "2", *ranks_of(be_interrupted)]
    with warm.start(words, cwd=tmp_path, env={**kept, "RANKWISE_DEBUG": level}) as launcher:
        assert launcher.stdout.readline() == "[0]: waiting\n"
        launcher.send_signal(signal.SIGINT)
        _, errors = launcher.communicate(timeout=PATIENCE_S)
    assert launcher.returncode == 130
    if lines is None:
        assert "Traceback" in errors
        return
    said = errors.splitlines()
    assert said[0].startswith("rankwise: Ctrl-C: stopping all ranks")
    assert any(line.startswith("[0]: KeyboardInterrupt at launch_programs.py:") for line in said)
    for line in said[1:]:
        assert re.fullmatch(r"\[\d\]: \w+ at launch_programs.py:\d+: .+", line)
    assert len(said) <= lines

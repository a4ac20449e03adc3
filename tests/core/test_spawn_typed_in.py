"""A function that was typed in has no file: `spawn` says what to do, rather than have new processes look for it."""

import subprocess
import sys

import pytest

PATIENCE_S = 60.0

#: Each rank writes its line at once, as what is typed in is written piece by piece.
TYPED = """\
import rankwise as dist
def hello(rank):
    print("rank %d\\n" % rank, end="", flush=True)

dist.spawn(hello, nprocs=2{more})
"""


def typed_in(text, *words, **settings):
    command = [sys.executable, *(words or ("-i", "-q"))]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE_S, **settings)


def test_a_function_without_a_file_is_refused_with_what_to_do(tmp_path):
    done = typed_in(TYPED.format(more=""), cwd=tmp_path)
    assert "ValueError: spawn: hello was typed in here, where new processes cannot find it" in done.stderr
    assert "`%%writefile ranks.py` does), and then `from ranks import hello`" in done.stderr
    assert done.stdout == ""
    assert "Process" not in done.stderr


def test_a_lambda_is_to_become_a_function_with_a_name(tmp_path):
    done = typed_in("import rankwise as dist\ndist.spawn(lambda rank: None, nprocs=2)\n", cwd=tmp_path)
    assert "<lambda> was typed in here" in done.stderr
    assert "`from ranks import NAME`" in done.stderr


def test_a_forked_process_knows_what_was_typed_in(tmp_path):
    done = typed_in(TYPED.format(more=", start_method='fork'"), cwd=tmp_path)
    assert sorted(done.stdout.split("\n")) == ["", "rank 0", "rank 1"]


@pytest.mark.parametrize("way", ["imported", "given by -c"])
def test_what_the_message_says_works(way, tmp_path):
    (tmp_path / "ranks.py").write_text("def hello(rank):\n    print('rank %d\\n' % rank, end='', flush=True)\n")
    program = "import rankwise as dist; from ranks import hello\ndist.spawn(hello, nprocs=2)\n"
    words = [] if way == "imported" else ["-c", program]
    done = typed_in(program, *words, cwd=tmp_path)
    assert sorted(done.stdout.split("\n")) == ["", "rank 0", "rank 1"], done.stderr

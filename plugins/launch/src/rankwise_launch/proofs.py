"""Two processes prove that a backend works, by an operation and a dtype that its table declares."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import NamedTuple

from rankwise.launching import REDUCTIONS, Capabilities
from rankwise_launch.commands import CommandError
from rankwise_launch.interviews import Interview
from rankwise_launch.launching import child, command_for, said_last
from rankwise_launch.text import meanwhile

_PROOF_S = 60.0
#: What is tried, the usual first: a message where there is no collective, a barrier where nothing else is.
_OPS = ("all_reduce", "broadcast", "all_gather", "recv", "barrier")
_DTYPES = (
    *("float64", "float32", "int64", "int32", "float16", "uint8", "int8", "int16", "uint16", "uint32", "uint64"),
    *("complex128", "complex64", "bool"),
)


class Proof(NamedTuple):
    """What two processes do: an operation, the dtype of its arrays, and the reduce op of a reduction."""

    op: str
    dtype: str
    reduce_op: str = ""

    def __str__(self) -> str:
        usual = (self.dtype, self.reduce_op or "SUM") == ("float64", "SUM")
        what = {"recv": "send and receive", "barrier": "meet at a barrier"}.get(self.op, self.op)
        size = "" if self.op == "barrier" else " 1 MiB"
        how = "" if usual or self.op == "barrier" else f" of {self.dtype}"
        return f"{what}{size}{how}" + (f" with {self.reduce_op}" if self.reduce_op not in ("", "SUM") else "")


def chosen(table: Capabilities) -> Proof | None:
    """Return what proves a backend: the first of the usual things that its table declares for the CPU here."""
    for op in _OPS:
        for reduce_op in REDUCTIONS if op == "all_reduce" else ("",):
            for dtype in _DTYPES:
                there = reduce_op != "PREMUL_SUM" and table.supports(op, "cpu", dtype, reduce_op or None)
                if there and (op != "recv" or table.supports("send", "cpu", dtype)):
                    return Proof(op, dtype, reduce_op)
    return None


def proofs(asked: list[Interview]) -> Iterator[tuple[bool | None, str]]:
    """Prove each backend that can run here; yield whether it went well (None: there is nothing to try), and a line."""
    for interview in asked:
        table = interview.table
        if table is None or not interview.available or "cpu" not in table.usable_devices():
            continue
        proof = chosen(table)
        if proof is None:
            yield None, f"{interview.name}: it declares nothing that two processes could try"
        else:
            meanwhile(f"  ..  {interview.name}: two processes {proof}")
            yield _proved(interview, proof)


def _proved(interview: Interview, proof: Proof) -> tuple[bool, str]:
    name = interview.name
    what = f"{name}: two processes {proof} on this machine"
    try:
        command = command_for(name, 2, "rankwise_launch.proof_program", name, *proof, launch=interview.launch)
        with child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            out, errors = process.communicate(timeout=_PROOF_S)
    except CommandError as error:
        return False, f"{what}: {error}"
    except subprocess.TimeoutExpired:
        return False, f"{what}: not done after {_PROOF_S:g} s"
    except OSError as error:
        return False, f"{what}: cannot start {command[0]}: {error.strerror}"
    if process.returncode == 0:
        return True, f"{what}: {said_last(out)}"
    return False, f"{what}: exit code {process.returncode}: {said_last(errors)}"

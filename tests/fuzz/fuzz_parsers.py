"""Coverage-guided fuzzing of the small parsers of outside bytes and texts; runs until it is stopped.

python tests/fuzz/fuzz_parsers.py -max_total_time=60 [CORPUS_FOLDER]

The first byte chooses the parser: hello, answer, proof, frame header, notice, card, request and reply of the store,
header and records of a file store, URL, environment, node list.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

try:
    import atheris
except ImportError:
    sys.exit("fuzz_parsers needs a fuzzer: pip install atheris")

with atheris.instrument_imports(include=["rankwise", "rankwise_gloo_tcp"]):
    from rankwise.errors import DistStoreError, ProtocolError, RendezvousError
    from rankwise.store.rendezvous import rendezvous
    from rankwise_gloo_tcp.protocol import frames, handshake
    from rankwise_gloo_tcp.protocol.card import read_card
    from rankwise_network.launcher_env import from_environment
    from rankwise_network.slurm import expand_nodes
    from rankwise_stores.records import HEADER_NBYTES, Header, Seal
    from rankwise_stores.tcp.wire import decode_reply, decode_request

KEY = bytes(range(32))
SEAL = Seal("store", KEY, "")
HELLO = handshake.Hello(1, 0, 2, bytes(16))
NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PMI_RANK", "PMI_SIZE", "SLURM_STEP_NODELIST")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _hello(data: bytes) -> None:
    handshake.read_hello(data[: handshake.HELLO_NBYTES].ljust(handshake.HELLO_NBYTES, b"\0"), 0, 2)


def _answer(data: bytes) -> None:
    handshake.check_answer(KEY, HELLO, data)
    raise AssertionError("an answer without the key was taken")


def _proof(data: bytes) -> None:
    handshake.check_proof(KEY, HELLO, bytes(handshake.ANSWER_NBYTES), data)
    raise AssertionError("a proof without the key was taken")


def _header(data: bytes) -> None:
    whole = data[: frames.HEADER_NBYTES].ljust(frames.HEADER_NBYTES, b"\0")
    assert frames.parse(whole).pack() == whole


def _environment(data: bytes) -> None:
    from_environment(env=dict(zip(NAMES, _text(data).split("\n"), strict=False)))


def _records(data: bytes) -> None:
    for _ in SEAL.unpack(data, Header(bytes(16), 0, HEADER_NBYTES, HEADER_NBYTES + len(data)), HEADER_NBYTES):
        raise AssertionError("a record without the key was taken")


#: Each parser, and the one error that may come out of it.
PARSERS: list[tuple[Callable[[bytes], object], type[Exception]]] = [
    (_hello, ProtocolError),
    (_answer, ProtocolError),
    (_proof, ProtocolError),
    (_header, ProtocolError),
    (frames.read_notice, ProtocolError),
    (lambda data: read_card(data, 1), RendezvousError),
    (decode_request, ProtocolError),
    (decode_reply, ProtocolError),
    (lambda data: SEAL.unpack_header(data.ljust(HEADER_NBYTES, b"\0")), DistStoreError),
    (_records, DistStoreError),
    (lambda data: rendezvous(_text(data)), ValueError),
    (_environment, ValueError),
    (lambda data: expand_nodes(_text(data)), ValueError),
]


def one_input(data: bytes) -> None:
    """Parse the bytes; nothing but the parser's own error may come out of that."""
    parse, error = PARSERS[data[0] % len(PARSERS) if data else 0]
    with contextlib.suppress(error):
        parse(data[1:])


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()

"""Every parser of bytes and texts from outside, by hypothesis: only the error that it documents escapes.

The codec and the requests of the store have tests of their own, `test_codec_hostile` and `test_store_wire`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import tempfile
import time
import zoneinfo
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankwise.codec.dtypes import dtype_from_spec
from rankwise.codec.values import _zone
from rankwise.errors import DistError, ProtocolError, RendezvousError
from rankwise.observing import unpack_error
from rankwise.store.rendezvous import rendezvous
from rankwise_network import secret
from rankwise_network.launcher_env import from_environment, local_rank
from rankwise_network.slurm import expand_nodes

pytest.importorskip("rankwise_gloo_tcp")

from rankwise_gloo_tcp.protocol import frames, handshake
from rankwise_gloo_tcp.setup import cards

steady = settings(max_examples=300, deadline=None, derandomize=True, database=None)
KEY = bytes(range(32))
FIELDS = len(cards.Card._fields)

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("rank kind host".split()), inner),
    max_leaves=8,
)
json_texts = json_values.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=60)


# ---------------------------------------------------------------------- the handshake


@given(st.binary(min_size=handshake.HELLO_NBYTES, max_size=handshake.HELLO_NBYTES), st.integers(0, 3))
@steady
def test_only_a_protocol_error_escapes_from_a_hello(data: bytes, rank: int) -> None:
    with contextlib.suppress(ProtocolError):
        hello = handshake.read_hello(data, rank, 4)
        assert hello.pack() == data
        assert hello.target == rank != hello.source < 4


@given(st.binary(max_size=handshake.ANSWER_NBYTES), st.binary(max_size=handshake.PROOF_NBYTES))
@steady
def test_no_bytes_prove_anything_without_the_key(answered: bytes, proof: bytes) -> None:
    hello = handshake.Hello.new(1, 0, 2)
    with pytest.raises(ProtocolError):
        handshake.check_answer(KEY, hello, answered)
    with pytest.raises(ProtocolError):
        handshake.check_proof(KEY, hello, handshake.answer(KEY, hello), proof)


@given(st.integers(0, 8 * (handshake.ANSWER_NBYTES + handshake.PROOF_NBYTES) - 1))
@steady
def test_one_changed_bit_spoils_a_handshake(bit: int) -> None:
    hello = handshake.Hello.new(1, 0, 2)
    answered = handshake.answer(KEY, hello)
    both = bytearray(answered + handshake.proof(KEY, hello, answered))
    both[bit // 8] ^= 1 << bit % 8
    there, back = bytes(both[: handshake.ANSWER_NBYTES]), bytes(both[handshake.ANSWER_NBYTES :])

    def shake_hands() -> None:
        handshake.check_answer(KEY, hello, there)
        handshake.check_proof(KEY, hello, answered, back)

    with pytest.raises(ProtocolError):
        shake_hands()


# ---------------------------------------------------------------------- frames, notices and cards


@given(st.binary(min_size=frames.HEADER_NBYTES, max_size=frames.HEADER_NBYTES))
@steady
def test_only_a_protocol_error_escapes_from_a_header(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        header = frames.parse(data)
        assert header.pack() == data
        assert header.kind != frames.Kind.ABORT or header.payload_nbytes <= frames.MAX_NOTICE_NBYTES


@given(json_texts)
@steady
def test_only_a_protocol_error_escapes_from_a_notice(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert isinstance(frames.read_notice(data), DistError)


def test_a_notice_is_bounded_and_comes_back_as_it_was() -> None:
    for text in ("short", "long" * 10_000, "☃" * 10_000, "\0\x1b[2J"):
        error = frames.read_notice(frames.notice(DistError(text), 3))
        assert len(frames.notice(error, 3)) <= frames.MAX_NOTICE_NBYTES


@given(json_values)
@steady
def test_only_a_protocol_error_escapes_from_a_verdict(content: Any) -> None:
    with contextlib.suppress(ProtocolError):
        assert isinstance(unpack_error(content), DistError)


def of_two_lines(lines: tuple[Any, Any]) -> bytes:
    return "\n".join(json.dumps(line) for line in lines).encode()


def some(count: int) -> Any:
    return st.lists(json_values, min_size=count, max_size=count)


@given(json_texts | st.tuples(some(FIELDS - 6) | json_values, some(6)).map(of_two_lines))
@steady
def test_only_a_rendezvous_error_escapes_from_a_card(row: bytes) -> None:
    with contextlib.suppress(RendezvousError):
        card = cards.read_card(row, 1)
        assert card.is_near(card) in (True, False)
        assert isinstance(card.port, int)


# ---------------------------------------------------------------------- URLs and the environment


@given(st.text(max_size=40) | st.from_regex(r"(tcp|file|env)://[^\x00]{0,30}\?(rank|world_size|x)=.{0,5}"))
@steady
def test_only_a_value_error_escapes_from_a_url(url: str) -> None:
    # The generator is not begun: nothing is connected to.
    with contextlib.suppress(ValueError):
        rendezvous(url)


numbers = st.sampled_from(["0", "1", "2", "-1", "", " 1", "1.5", "1e9", "9" * 30, "٣", "x", "\0"]) | st.text(max_size=6)
VARIABLES = [
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
    *("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_NODELIST"),
    *("PMIX_RANK", "PMIX_NAMESPACE", "TORCHELASTIC_USE_AGENT_STORE", "MPI_LOCALNRANKS"),
]


@given(st.dictionaries(st.sampled_from(VARIABLES), numbers))
@steady
def test_only_a_value_error_escapes_from_an_environment(env: dict[str, str]) -> None:
    with contextlib.suppress(ValueError):
        place = from_environment(env=env)
        assert 0 <= place.rank < place.world_size
        assert 0 <= place.master_port < 1 << 16
    with contextlib.suppress(ValueError):
        local_rank(env)


@given(st.text(alphabet="abn[]-,0129", max_size=30))
@steady
def test_only_a_value_error_escapes_from_a_node_list(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert 0 < len(expand_nodes(text)) <= 1 << 16


@given(st.binary(max_size=100))
@steady
def test_only_a_value_error_escapes_from_a_secret_and_shows_nothing_of_it(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        os.chmod(file.name, 0o600)
        said = ""
        try:
            assert len(secret._from_file(file.name)) == secret.SECRET_NBYTES
        except ValueError as error:
            said = str(error)
    assert len(data) < 8 or (data.hex() not in said and repr(data)[2:-1] not in said)


@given(st.binary(max_size=100))
@steady
def test_no_foreign_descriptor_is_read_for_a_secret(data: bytes) -> None:
    reader, writer = os.pipe()
    try:
        os.write(writer, data)
        assert secret._from_descriptor(str(reader)) is None
        os.close(writer)
        writer = -1
        assert os.read(reader, 1000) == data
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)


# ---------------------------------------------------------------------- time

UNITS = ("a", "[", "]", "1", "-", ",", "/", ":", "=", "%", "?", "a[1]", "[1", "1-", "[1,", "::", "a/", "a.")
ENDS = ("", "[", "]", "\0", "\n", "é")


@pytest.mark.parametrize(
    "parse",
    [
        expand_nodes,
        lambda text: rendezvous(f"tcp://{text}"),
        rendezvous,
        lambda text: from_environment(env={"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_NODELIST": text}),
        lambda text: from_environment(env=dict.fromkeys(["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"], text)),
        lambda text: secret._parse(text.encode(), "a test"),
        lambda text: _zone(zoneinfo.ZoneInfo, text),
        dtype_from_spec,
    ],
    ids=["nodes", "address", "url", "slurm", "environment", "secret", "zone", "dtype"],
)
def test_no_text_takes_a_parser_long(parse: Callable[[str], object]) -> None:
    """A pattern that may cut a text in many ways tries them all before it refuses: 2**40 of them here."""
    began = time.thread_time()
    for unit, end in itertools.product(UNITS, ENDS):
        with contextlib.suppress(ValueError, TypeError, DistError):
            parse(40 * unit + end)
    assert time.thread_time() - began < 5

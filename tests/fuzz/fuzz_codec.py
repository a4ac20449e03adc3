"""Coverage-guided fuzzing of the object codec; runs until it is stopped, or as libFuzzer's options say.

python tests/fuzz/fuzz_codec.py -max_total_time=60 [CORPUS_FOLDER]
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import fractions
import pathlib
import sys
import tempfile
import uuid
import zoneinfo
from typing import Any

import numpy as np

try:
    import atheris
except ImportError:
    sys.exit("fuzz_codec needs a fuzzer: pip install atheris")

with atheris.instrument_imports(include=["rankwise.codec"]):
    from rankwise.codec import DecodeError, decode, encode
    from rankwise.codec.layout import MAGIC

#: What a DecodeError may be made of; any other cause is a slip in the codec.
EXPECTED_CAUSES = (ValueError, TypeError, LookupError, ArithmeticError, OSError, SystemError)


@dataclasses.dataclass(frozen=True)
class Plain:
    value: Any


SEEDS = [
    *(None, True, 1, 2**80, 1.5, 1j, "é", b"a", bytearray(b"b"), [1, [2]], (1, ()), {1}, frozenset({"a"})),
    *({"a": {1: None}}, [0] * 16, (0.5,) * 16, np.arange(6).reshape(2, 3), np.zeros(1, [("a", "i4"), ("b", "u1", 3)])),
    *(np.zeros(2, "M8[ns]"), np.zeros(2, "<U3"), np.float32(1), np.dtype(">f8"), np.str_("a"), np.bytes_(b"a")),
    *(datetime.date(2020, 1, 2), datetime.time(3, fold=1), datetime.timedelta(1, 2, 3), Plain(Plain(1)), range(3)),
    datetime.datetime(2020, 1, 2, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
    datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=1), "here")),
    *(decimal.Decimal("1.5"), fractions.Fraction(1, 3), uuid.UUID(int=7), pathlib.Path("a"), {Plain(1): [b""]}),
]


def one_input(data: bytes) -> None:
    """Decode the bytes; only DecodeError may come out of that, and whatever is decoded can be sent on."""
    try:
        found = decode(MAGIC + data)
    except DecodeError as error:
        cause = error.__cause__
        if cause is not None and not isinstance(cause, EXPECTED_CAUSES) and type(cause).__module__ != "struct":
            raise cause from None
        return
    decode(encode(found))


def main() -> None:
    """Fuzz, beginning from one object of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        for number, obj in enumerate(SEEDS):
            pathlib.Path(folder, str(number)).write_bytes(encode(obj)[len(MAGIC) :])
        # libFuzzer keeps what it finds in the first folder, which may be the caller's.
        atheris.Setup([*sys.argv, folder], one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()

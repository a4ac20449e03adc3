"""Coverage-guided fuzzing of the object codec: python tests/fuzz/fuzz_codec.py -max_total_time=60"""

import sys

try:
    import atheris
except ImportError:
    sys.exit("this needs a fuzzer: pip install atheris")

with atheris.instrument_imports(include=["rankwise.codec"]):
    from rankwise.codec import decode, encode
from rankwise.errors import CodecError


def one_input(data: bytes) -> None:
    try:
        decoded = decode(data)
    except CodecError:
        return
    encode(decoded)  # what is decoded can be encoded


atheris.Setup(sys.argv, one_input)
atheris.Fuzz()

"""No primitive of cryptography is written here: what each begins with is nowhere in the sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for pattern in ("core/**/*.py", "plugins/**/*.py", "plugins/**/*.[ch]", "plugins/**/*.cpp", "plugins/**/*.cu")
    for path in ROOT.glob(pattern)
]
#: Constants that a form of a primitive cannot do without, as hexadecimal digits or text.
CONSTANTS = {
    "SHA-512 and BLAKE2b": "6a09e667f3bcc908",
    "SHA-256 and BLAKE2s": "6a09e667",
    "SHA-1 and MD5": "67452301",
    "the rounds of SHA-256": "428a2f98",
    "SHA-3": "800000008000808b",
    "ChaCha and Salsa": "expand 32-byte k",
    "SipHash": "736f6d6570736575",
    "AES": "637c777bf26b6fc5",
    "Curve25519": "7fffffffffffffffffffffffffffffed",
}


def plain(text: str) -> str:
    """Return a source without what digits may be parted by."""
    return re.sub(r"0x|[\s,_]", "", text.lower())


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): plain(path.read_text("utf-8")) for path in SOURCES}


@pytest.mark.parametrize("primitive", CONSTANTS)
def test_no_primitive_of_cryptography_is_written_here(texts: dict[str, str], primitive: str) -> None:
    constant = CONSTANTS[primitive].replace(" ", "")
    assert len(texts) > 300
    assert [path for path, text in texts.items() if constant in text] == []


def test_one_would_be_found() -> None:
    for text in ("0x6a09e667f3bcc908ULL,", "0x63, 0x7c, 0x77, 0x7b,\n 0xf2, 0x6b, 0x6f, 0xc5", '"expand 32-byte k"'):
        assert any(constant.replace(" ", "") in plain(text) for constant in CONSTANTS.values()), text

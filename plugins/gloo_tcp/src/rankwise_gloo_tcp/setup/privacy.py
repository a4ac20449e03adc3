"""Whether connections between hosts are encrypted, and the certificates by which ranks know each other then.

With `RANKWISE_GLOO_INTEGRITY=encrypted` each rank makes a key and a certificate for one group, and publishes the
certificate on its card, in the store that the job secret guards. Each end of a connection accepts the one certificate
of the rank that it talks to. TLS 1.3 makes new keys for each connection, so that someone who learns the job secret
later can read nothing of what was sent. Where torch is told `GLOO_DEVICE_TRANSPORT=TCP_TLS`, its files take their
place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rankwise.errors import RendezvousError
from rankwise_gloo_tcp.protocol.card import Card

if TYPE_CHECKING:  # most programs never load OpenSSL
    from rankwise_gloo_tcp.transport.encrypted import AnyContext, Encryption

#: The value of the setting, and what a card says where files of the user's take the place of a certificate.
ENCRYPTED, BY_FILES = "encrypted", "files"
_TRANSPORT, _PREFIX = "GLOO_DEVICE_TRANSPORT", "GLOO_DEVICE_TRANSPORT_TCP_TLS_"
_REMEDY = "pip install 'rankwise-gloo-tcp[encryption]'"


class Privacy(NamedTuple):
    """What a rank has for encrypted connections.

    Attributes:
        certificate: What its card says: the certificate, `BY_FILES`, or nothing if it can have none.
        prove: Has a context use its key and certificate.
    """

    certificate: str
    prove: Callable[[AnyContext], object]


def torch_files() -> dict[str, str] | None:
    """Return the files that torch's variables name, by the ends of their names; None where these ask for no TLS.

    Raises:
        ValueError: Some are missing.
    """
    if os.environ.get(_TRANSPORT) != "TCP_TLS":
        return None
    found = {name: os.environ.get(_PREFIX + name, "") for name in ("PKEY", "CERT", "CA_FILE", "CA_PATH")}
    lacking = [_PREFIX + name for name in ("PKEY", "CERT") if not found[name]]
    if not (found["CA_FILE"] or found["CA_PATH"]):
        lacking.append(_PREFIX + "CA_FILE")
    if lacking:
        raise ValueError(f"{_TRANSPORT}=TCP_TLS needs {', '.join(lacking)}")
    return found


def prepare(integrity: str) -> Privacy | None:
    """Return what this rank needs if connections are to be encrypted, or None.

    Raises:
        ValueError: torch's variables make no sense.
    """
    files = torch_files()
    if files is not None:
        return Privacy(BY_FILES, lambda context: context.load_cert_chain(files["CERT"], files["PKEY"]))
    if integrity != ENCRYPTED:
        return None
    try:
        certificate, key = _new_certificate()
    except ImportError:
        return Privacy("", lambda context: None)

    def prove(context: AnyContext) -> None:
        from rankwise_gloo_tcp.transport.openssl import as_file

        with as_file((certificate + key).encode()) as path:
            context.load_cert_chain(path)

    return Privacy(certificate, prove)


def encryption(privacy: Privacy | None, cards: Sequence[Card], names: Sequence[int], group: str) -> Encryption | None:
    """Return what encrypts the connections of a group, once all cards are known.

    Raises:
        RendezvousError: Some ranks cannot, or do it in another way.
    """
    if privacy is None:
        return None
    from rankwise_gloo_tcp.transport.encrypted import Encryption

    lacking = [str(name) for name, card in zip(names, cards, strict=True) if not card.certificate]
    if lacking:
        raise RendezvousError(
            f"group {group!r}: connections are to be encrypted, but rank {', '.join(lacking)} cannot make a "
            f"certificate; there, {_REMEDY}"
        )
    files = torch_files()

    def know(context: AnyContext, peer: int) -> None:
        if files is not None:
            context.load_verify_locations(files["CA_FILE"] or None, files["CA_PATH"] or None)
        else:
            context.load_verify_locations(cadata=cards[peer % len(cards)].certificate)

    return Encryption(privacy.prove, know)


def _new_certificate() -> tuple[str, str]:
    """Return a new certificate that its own key has signed, and that key, as text."""
    from datetime import datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rankwise")])
    now, years = datetime.now(), timedelta(days=3650)  # the clocks of hosts may differ by whatever they like
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - years, now + years)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
    return certificate.public_bytes(pem).decode(), text

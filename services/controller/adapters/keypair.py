"""Makes SSH key pairs, which job plugin ssh may not do itself: it is pure (JP3)."""

from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from shared.jobplugins.ssh import KeyPair

BITS: Final = 2048
"""As in Volcano; the keys live as long as a job."""


def key_pair() -> KeyPair:
    """Return a new RSA key pair; takes some 40 ms of a core."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=BITS)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return KeyPair(private=private.decode(), public=f"{public.decode()}\n")

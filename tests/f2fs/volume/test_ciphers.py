"""The ciphers: published vectors where the kernel of the reference images had none, and that both directions agree."""

from __future__ import annotations

import random

import numpy as np
import pytest

from f2tools.f2fs.volume import ciphers

# (key, tweak, plain, cipher): of the vectors that google/hctr2 published, as the kernel's self-test has them
HCTR2 = (
    (
        "e115663c8dc63affef41d747a2cc8aba",
        "c3be2acbb53986f191ad6cf4de7445635c7ad5cc8b76ef0ecf2c606937fd0796",
        "6575aed3e2bc435cb31ad805c3d05629",
        "1191ea7458ccd5a2d0559e3dfe7fc8fe",
    ),
    (
        "dace3085e706e6028f02bf9a826e54de",
        "f67a28cefb6cb3c54781586907e522db6693d7e9bd5c7ff08a0b0709bbf148c4",
        "01cda4478e4ebc7dfdd8e9aac737253d56",
        "f3b29ede965df0f6b64357c553e8f90587",
    ),
    (
        "d84fbc258d3b30b91abc206daefdc826cd23b48628074c3e",
        "ebd597af038503830c6ba3abe10015f24c7dfb9850cd19752827e81802bce0dd",
        "7e3a0e9ca852a83a1553ed5c0b2a965c712482ee53d4d5de27cd3618f7914f",
        "d082a9db77123b90e6d5dd266f31ebdfd40c562e8476778635b40ffb1d5a15",
    ),
    (
        "bfafd7678c47cf218aa5dd322547be4ff13a0ba6aa2dcf09",
        "d9e8f0924efc1df281377c8ff1590920f44651864f548b3258d1998b8c03eb5d",
        "cd6490f97ce50e5a75e78e3986ec20438a49091547f43c8921ebcf4ecf91b540cde54d5c6ff2d280faabb3769f7f840a",
        "44986415b70b80a3b9ca23ff3b0b6874bb3e20199f28712a483c7ce2efb510ac829fcd088f6b166fc3bb07fb3cb01b27",
    ),
)
# CBC-CS3 with a zero vector: RFC 3962, appendix B
CTS_KEY = b"chicken teriyaki"
CTS = (
    (b"I would like the ", "c6353568f2bf8cb4d8a580362da7ff7f97"),
    (b"I would like the General Gau's ", "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5"),
    (b"I would like the General Gau's C", "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584"),
)


def rows(*items: bytes) -> np.ndarray:
    return np.frombuffer(b"".join(items), np.uint8).reshape(len(items), -1)


@pytest.mark.parametrize(("key", "tweak", "plain", "secret"), HCTR2)
def test_hctr2_gives_the_published_bytes(key: str, tweak: str, plain: str, secret: str) -> None:
    cipher = ciphers.Hctr2(bytes.fromhex(key))
    ivs = rows(bytes.fromhex(tweak))
    assert cipher.encrypt(rows(bytes.fromhex(plain)), ivs).tobytes().hex() == secret
    assert cipher.decrypt(rows(bytes.fromhex(secret)), ivs).tobytes().hex() == plain


@pytest.mark.parametrize(("plain", "secret"), CTS)
def test_ciphertext_stealing_gives_the_bytes_of_rfc_3962(plain: bytes, secret: str) -> None:
    cipher = ciphers.Cts(CTS_KEY)
    ivs = rows(bytes(16))
    assert cipher.encrypt(rows(plain), ivs).tobytes().hex() == secret
    assert cipher.decrypt(rows(bytes.fromhex(secret)), ivs).tobytes() == plain


def test_the_xts_made_of_a_block_cipher_is_that_of_the_library() -> None:
    draw = random.Random(7)
    key, data, ivs = draw.randbytes(64), rows(draw.randbytes(4096), draw.randbytes(4096)), rows(bytes(16), b"\x05" * 16)
    ours, library = ciphers.Sm4Xts(key, sm4=False), ciphers.AesXts(key)
    assert ours.encrypt(data, ivs).tobytes() == library.encrypt(data, ivs).tobytes()
    assert ours.decrypt(data, ivs).tobytes() == library.decrypt(data, ivs).tobytes()


@pytest.mark.parametrize(
    ("cipher", "key_size", "sizes"),
    [
        (ciphers.AesXts, 64, (512, 4096)),
        (ciphers.Sm4Xts, 32, (512, 4096)),
        (ciphers.AesCbcEssiv, 16, (512, 4096)),
        (ciphers.Cts, 32, (16, 17, 32, 48, 255)),
        (ciphers.Adiantum, 32, (16, 17, 31, 32, 255, 1040, 1041, 4096)),
        (ciphers.Hctr2, 32, (16, 17, 32, 255)),
    ],
)
def test_what_is_encrypted_decrypts(cipher: type[ciphers.Cipher], key_size: int, sizes: tuple[int, ...]) -> None:
    draw = random.Random(key_size)
    made = cipher(draw.randbytes(key_size))  # type: ignore[call-arg]
    for size in sizes:
        units = rows(*(draw.randbytes(size) for _ in range(3)))
        ivs = rows(*(draw.randbytes(made.iv_size) for _ in range(3)))
        secret = made.encrypt(units, ivs)
        assert not (secret == units).all()
        assert made.decrypt(secret, ivs).tobytes() == units.tobytes()
        one_by_one = b"".join(made.encrypt(units[i : i + 1], ivs[i : i + 1]).tobytes() for i in range(3))
        assert secret.tobytes() == one_by_one

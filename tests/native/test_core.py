"""The compiled core and its twins in Python say the same, and a core of other files is not used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools import native
from f2tools.f2fs.layout import hashes


@contextmanager
def in_python(*modules: ModuleType) -> Iterator[None]:
    """These modules without the core."""
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(module, "core", None)
        yield


def test_the_core_is_built_here_and_used() -> None:
    assert native.core is not None, "make setup builds it; tests without it would compare Python with Python"


def test_the_core_and_its_files_have_the_same_number() -> None:
    header = (Path(native.__file__).parent / "core.h").read_text()
    assert re.findall(r"#define CORE (\d+)", header) == [str(native.CORE)]


def test_a_core_of_other_files_and_one_that_is_switched_off_are_not_used() -> None:
    look = "from f2tools import native; print(native.core is None)"
    off = {**os.environ, "F2TOOLS_CORE": "off"}
    assert subprocess.check_output([sys.executable, "-c", look], env=off, text=True) == "True\n"
    older = "import importlib; from f2tools import native; native.built.CORE -= 1; importlib.reload(native); "
    assert subprocess.check_output([sys.executable, "-c", older + look], text=True) == "True\n"


@given(
    st.lists(st.tuples(st.integers(0, 4096), st.integers(0, 4096), st.integers(0, 2**32)), max_size=4),
    st.sampled_from([512, 4096, 16384]),
    st.sampled_from([368, 360, 256]),
)
def test_checksums_of_inodes(filled: list[tuple[int, int, int]], size: int, at: int) -> None:
    blocks = np.zeros((len(filled), size), np.uint8)
    for block, (start, end, seed) in zip(blocks, filled, strict=True):
        part = block[start:end]
        part[:] = np.random.default_rng(seed).integers(0, 256, len(part))
    found = hashes.inode_checksums(b"0123456789abcdef", blocks, at)
    with in_python(hashes):
        assert found.tolist() == hashes.inode_checksums(b"0123456789abcdef", blocks, at).tolist()


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": 4095}, {"at": 4093}, {"at": -1}, {"found": 4}, {"size": 64}])
def test_a_checksum_of_buffers_that_do_not_agree_is_an_error(wrong: dict[str, int]) -> None:
    assert native.core is not None
    given = {"size": 4096, "at": 368, "found": 8} | wrong
    with pytest.raises(ValueError, match="do not agree"):
        native.core.inode_checksums(b"u" * 16, bytes(8192), given["size"], given["at"], bytearray(given["found"]))

"""A field is wrong, and everything else is right: no byte of a file and no name is lost where another place knows it.

`make nightly` tries every field with every wrong value (F2_FSCK_EVERY); here it is some of them, from all over.
`python -m tests.fsck.fields IMAGE 1 WORD...` tells the story of one.
"""

from __future__ import annotations

import os

import pytest

from f2tools.f2fs.layout.dentry import DirEntry
from f2tools.f2fs.layout.node import DirectNode, IndirectNode, Inode, InodeExtra, NodeFooter
from f2tools.fsck.fields import WITNESSES
from tests.fsck import fields

ALL = bool(int(os.environ.get("F2_FSCK_EVERY", "0")))
IMAGES = ("base", *(("plain", "checksums") if ALL else ()))
SLICE = 1 << 30 if ALL else 24  # cases of an image
TOLD = 5
PAD32 = "/v2-aes256xts-pad32"
FOLDED = "/v2-aes256xts-pad4/5EzFmgAAAACBYde97wToxqJNnJdI6AA9/j-"
FOLDER = f"{PAD32}/nTmnFwAAAADEpXCANaOsakI_EKBnLF2fCoscet124lWPpese8YYxeg"
PLAIN = f"{PAD32}/8Jpq3AAAAACW-gUF22B5q3eLA7n2ZgCbl4u"
PACKED = (
    f"{PAD32}/9NXsagAAAABTjwagTeyvdw-JqawSoTk7GC_QwpXB3HYbErPhWm-4rQ/"
    "eGnUFgAAAAAs3-93wMu0t1XkNLemzq1QxI5g8jriENL_Hx8WThIwRg"
)


@pytest.mark.parametrize("name", IMAGES)
def test_one_wrong_field_costs_nothing_that_another_place_knows(name: str) -> None:
    cases = fields.facts(name).cases
    failures = [
        f"{case}: {wrong[:TOLD]}"
        for case in cases[:: max(1, len(cases) // SLICE)]
        if (wrong := fields.judged(name, case)[0])
    ]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize(
    ("name", "words"),
    [("base", "inode i_mode of /medium/two = 11"), ("base", "inode i_current_depth of /bigdir = 0000003c"),
     ("base", "entry ino of /small"), ("base", "entry name_len of /small/a-00001-1"),
     ("base", "inode i_nid of /sparse/depths"), ("base", "inode i_nid of /sparse/depths = 00000036"),
     ("base", "inode i_xattr_nid of /sparse/depths = 00000046"),
     ("base", "inode i_xattr_nid of /xattr/spill = 00000000"), ("base", "footer flag of /xattr/dir = 00000000"),
     ("base", "inode i_addr of /links/soft3489 = 0000160b"), ("base", "inode i_mode of /links/null = 81b6"),
     ("base", "inode i_mode of /links/fifo = 21a0"), ("base", "inode i_inline of / = 04"),
     ("base", "inode i_inline of /bigdir = 05"), ("base", "inode i_inline of /xattr/dir = 01"),
     ("base", "inode i_inline of /xattr/dir = 04"), ("base", "inode i_inline of /xattr/max = 02"),
     ("checksums", "inode i_inline of /small/file-04097-20 = 01"),
     ("checksums", "inode i_size of /small/file-03487-12 = 00000000000006cf"),
     ("features", "inode i_inline_xattr_size of /small/a-00000-0 = ffff"),
     ("features", "inode i_inline_xattr_size of /xattr/spill = 0031"),
     ("features", "inode i_inline_xattr_size of /xattr/spill = 4032"),
     ("features", "inode i_inline_xattr_size of /verity/v1 = 0000"),
     ("features", "inode i_inline of /xattr/max = 00"), ("noinline-xattr", "inode i_inline of /xattrs/link = 0b"),
     ("noinline", "inode i_inline of /small/some.longer.name-00001-1 = ff"),
     ("noinline", "inode i_inline of /xattr/fifo = ff"), ("inline-xattr-size", "inode i_inline of /xattrs/folder = 00"),
     ("device-alias-16k", "inode i_inline of /second.disk = 42"),
     ("device-alias-16k", "inode i_size of /second.disk = 0000000000000fff"),
     ("device-alias-16k", "inode i_ext of /second.disk"),
     ("device-alias-16k", "inode i_flags of /second.disk = 7fffffff"),
     ("device-alias-16k", "inode i_flags of / = ffffffff"),
     ("device-alias-16k", "inode i_flags of /few/3 = ffffffff"),
     ("device-alias-16k", "inode i_flags of /many/entry--0059 = ffffffff"),
     ("features", "inode i_extra_isize of /lost+found = 0017"),
     ("casefold", "entry name_len of /folded = 0007"),
     ("packed-ssa", "inode i_inline of /few/3 = 09"),
     ("compress-lz4", "inode i_inline of /compressed = 27"),
     ("compress-lz4", "inode i_addr of /single = 00001ac7"),
     *[("compress-lz4", f"inode i_addr of /single = {wrong}") for wrong in ("ffffffff", "00001007", "fffffffe")],
     *[("compress-released", f"inode i_addr of /compressed/text = {wrong}")
       for wrong in ("00000000", "ffffffff", "00001007", "00001000", "fffffffe")],
     *[("blocks16k-compress", f"inode i_addr of {path} = fffffffe") for path in ("/big/direct", "/few/3")],
     *[("fragmented", f"inode i_addr of /churn/f10 = 000016{block}") for block in ("b0", "a4")],
     ("zoned", "inode i_addr of /links/hard0 = fffffffe"), ("history-a", "direct addr of /tmp/m158 = 00001000"),
     ("compress-user", "inode i_addr of /compressed/tiny = 00001009"),
     ("compress-released", "inode i_log_cluster_size of /compressed/text"),
     ("blocks16k-compress", "inode i_log_cluster_size of /big/direct"),
     ("compress-released", "inode i_flags of /compressed/text"),
     ("fscrypt-android", "inode i_advise of /v2-aes256xts-pad32/AEUx7"),
     ("fscrypt", "inode i_addr of / = 000017b8"), ("casefold", "inode i_addr of / = 00001602"),
     *[("fscrypt-android", f"entry {field} of {path}") for field in ("name_len", "bitmap") for path in (FOLDED, PLAIN)],
     ("fscrypt", "entry ino of /v2-aes256xts-pad4 = 00000088"),
     ("fscrypt-android", f"inode i_addr of {FOLDER} = 000017d6"),
     ("fscrypt-android", f"inode i_addr of {PACKED} = 00001063"),
     ("fscrypt", "inode i_size of /v2-aes256xts-pad32/SbUeDgAA"),
     ("features", "inode i_size of /verity/v1 = 0000010000000000"), ("features", "inode i_advise of /verity/v1"),
     ("features", "inode i_inline_xattr_size of /sparse/depths = 0132"),
     ("phone", "inode i_addr of /data/com.browser.app/databases/downloads.db-journal = 00000001"),
     ("casefold", "inode i_flags of /folded = 00000000"), ("compress-lz4", "inode i_inline of /single = ff"),
     ("compress-released", "inode i_inline of /compressed/text = a2"),
     ("blocks16k-compress", "inode i_size of /big/direct = 0000000000300000"),
     ("compress-lz4", "inode i_addr of /plain = 00002619"),
     ("plain", "inode i_blocks of /xattr/spill = 0000000000000001")],
)  # fmt: skip
def test_the_majority_is_right(name: str, words: str) -> None:
    cases = [case for case in fields.facts(name).cases if str(case).startswith(words)][:2]
    assert cases
    assert not [wrong for case in cases for wrong in fields.judged(name, case)[0]]


def test_of_every_field_it_is_told_who_else_knows_it() -> None:
    layouts = (
        ("inode", Inode), ("inode", InodeExtra), ("footer", NodeFooter), ("entry", DirEntry),
        ("direct", DirectNode), ("indirect", IndirectNode),
    )  # fmt: skip
    there = {(what, item.name) for what, layout in layouts for item in layout.fields if item.name != "footer"}
    assert {(item.structure, item.field) for item in WITNESSES} == there | {("entry", "bitmap"), ("entry", "name")}
    assert len(WITNESSES) == len({item[:2] for item in WITNESSES})

"""Policies of encryption that differ between a directory and what is in it: the kernel opens nothing there.

Where one is alone against its neighbours it gets theirs back; else what is in the directory goes to lost+found where
something speaks for the directory, or one alone is in question; else that is told, and stays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from f2tools.f2fs.layout.constants import F2FS_INLINE_XATTR, FADVISE_ENC_NAME_BIT, FADVISE_ENCRYPT_BIT
from f2tools.f2fs.layout.xattr import FSCRYPT_NONCE_SIZE
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import open_volume
from f2tools.f2fs.volume.xattr import encryption_context
from f2tools.fsck.findings import Finding
from tests import images, judges
from tests.dump.craft import f2
from tests.fsck.craft import Patient, codes, examine
from tests.fsck.test_repair import assert_silent, repair
from tests.kernel.guest import Guest
from tests.sweeps import ALL

V1, V2 = "v1-aes256xts", "v2-aes256xts-pad32"
# bytes of each version; without $F2_SWEEPS some of each field: version, modes, flags, what is reserved, the key's name
SHAPES = {V1: range(12), V2: range(24)} if ALL else {V1: (0, 1, 2, 3, 4, 11), V2: (0, 1, 2, 3, 4, 7, 8, 23)}


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return images.reference("fscrypt").copy(tmp_path).path


def top(image: Path, name: str) -> Inode:
    with open_volume(image) as volume:
        return volume.path(f"/{name}").inode


def names(image: Path) -> dict[str, Inode]:
    """The directories at the top, by their names."""
    with open_volume(image) as volume:
        found = {entry.name.decode(): entry.inode for entry in volume.listdir(volume.root.inode)}
        return {name: inode for name, inode in found.items() if isinstance(inode, Inode) and inode.encrypted}


def children(image: Path, name: str) -> list[Inode]:
    with open_volume(image) as volume:
        inodes = [entry.inode for entry in volume.listdir(volume.path(f"/{name}").inode)]
        return [inode for inode in inodes if isinstance(inode, Inode) and inode.encrypted]


def context_of(image: Path, inode: Inode) -> bytes:
    with open_volume(image) as volume:
        found = encryption_context(volume.nodes, volume.nodes.inode(inode.ino))
        assert found is not None
        return found


def change(image: Path, inode: Inode, alter: Callable[[bytes], bytes]) -> None:
    """Alter the encryption context of an inode, as long as it stays."""
    before = context_of(image, inode)
    after = alter(before)
    assert len(after) == len(before)
    block = inode.block.tobytes()
    assert block.count(before) == 1
    with image.open("r+b") as file:
        file.seek(4096 * inode.blkaddr)
        file.write(block.replace(before, after))


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda context: context[:at] + bytes([context[at] ^ 0x41]) + context[at + 1 :]


def policy_of(other: bytes) -> Callable[[bytes], bytes]:
    """The policy of another context, the nonce of this one."""
    return lambda context: other[:-FSCRYPT_NONCE_SIZE] + context[-FSCRYPT_NONCE_SIZE:]


def only(image: Path) -> Finding:
    report = examine(image)
    assert set(codes(report)) == {"I042"}
    (finding,) = report.findings
    return finding


@pytest.mark.parametrize(("name", "at"), [(name, at) for name, places in SHAPES.items() for at in places])
def test_any_byte_of_a_policy_comes_back_from_those_around_it(name: str, at: int, image: Path) -> None:
    before = image.read_bytes()
    name = next(one for one in names(image) if one.startswith(name))
    victims = [top(image, name), *children(image, name)[:1]]
    for inode in victims:
        change(image, inode, flipped(at))
        finding = only(image)
        assert finding.ino == inode.ino
        assert finding.expected is not None
        assert repair(image).complete
        assert_silent(image)
        with image.open("rb") as file:
            file.seek(4096 * inode.blkaddr)
            assert file.read(4096 - 24) == before[4096 * inode.blkaddr :][: 4096 - 24]


def test_a_directory_with_the_policy_of_another_gets_that_of_what_is_in_it(image: Path) -> None:
    first, second = _two(image)
    inode, was = top(image, first), context_of(image, top(image, first))
    change(image, inode, policy_of(context_of(image, top(image, second))))
    finding = only(image)
    assert finding.ino == inode.ino
    said = f2("fsck", image, "-y").text
    assert "its nonce is what it was" in said
    assert context_of(image, inode) == was
    assert_silent(image)


def _two(image: Path) -> list[str]:
    return [name for name in names(image) if name.startswith("v2-aes256xts")][:2]


def test_a_file_with_the_policy_of_others_goes_to_lost_found(image: Path) -> None:
    """Not with -p; and a mistake that nothing is done about would keep -y from mending all the others."""
    first, second = _two(image)
    file = next(inode for inode in children(image, first) if inode.is_file)
    change(image, file, policy_of(context_of(image, top(image, second))))
    finding = only(image)
    assert finding.ino == file.ino
    assert f"its directory, inode {top(image, first).ino}, has another: " in finding.message
    before = image.read_bytes()
    assert f2("fsck", "-p", image).code == 4
    assert image.read_bytes() == before
    assert repair(image).complete
    assert_silent(image)
    with open_volume(image) as volume:
        assert volume.path(f"/lost+found/#{file.ino}").inode.ino == file.ino
    assert judges.fsck(image).rc == 0


def test_an_entry_that_leads_to_a_file_of_another_policy_takes_nothing_from_that(tmp_path: Path) -> None:
    """Nor is anything else left alone for it.  What the entry led to is lost."""
    with closing(Patient("fscrypt", tmp_path)) as patient:
        first, second = _two(patient.path)
        file, other = (next(i for i in children(patient.path, name) if i.is_file) for name in (first, second))
        entries = patient.vol.dirs.entries(patient.vol.path(f"/{first}").inode)
        name = next(entry.name for entry in entries if entry.ino == file.ino)
        _, at, _ = patient.dentry(f"/{first}", name)
        whole = json.loads(f2("dump", "manifest", patient.path).out)["entries"]
        patient.write(at + 4, other.ino.to_bytes(4, "little"))
        patient.write(4096 * file.blkaddr, bytes(4096))
        said = f2("fsck", "-y", patient.path)
        assert (said.code, "I042" in said.text) == (1, True)
        assert_silent(patient.path)
        assert judges.fsck(patient.path).rc == 0
        again = json.loads(f2("dump", "manifest", patient.path).out)["entries"]
        gone = [path for path in whole if path not in again]
        assert [whole[path]["ino"] for path in gone] == [file.ino]
        kept = {path: entry for path, entry in again.items() if "lost+found" not in path}
        assert kept.keys() == whole.keys() - set(gone)
        assert [path for path in kept if again[path]["ino"] != whole[path]["ino"]] == []
        assert [path for path in kept if again[path].get("sha256") != whole[path].get("sha256")] == []


def test_a_directory_that_nothing_speaks_for_keeps_all_that_differ(image: Path) -> None:
    """Its only neighbours are several that contradict it and each other: which is right can't be told."""
    first, second, third = [name for name in names(image) if name.startswith("v2-")][:3]
    directory, inside = top(image, first), children(image, first)
    policies = [policy_of(context_of(image, top(image, name))) for name in (second, third)]
    for number, inode in enumerate(inside):
        change(image, inode, policies[number % 2])
    (finding,) = (found for found in examine(image).findings if found.ino == directory.ino)
    assert (finding.code, finding.repair) == ("I042", None)
    assert "in it have another, and which is right can't be told" in finding.message
    assert not repair(image).complete


def make_plain(image: Path, inode: Inode) -> None:
    """Take context and marks of encryption from an inode, as if it had been made anew without them."""
    context, block = context_of(image, inode), bytearray(inode.block.tobytes())
    at = bytes(block).index(context) - 1 - 4 - 24
    block[at : at + 24 + 4 + 1 + len(context)] = bytes(24 + 4 + 1 + len(context))
    block[2] &= ~(FADVISE_ENCRYPT_BIT | FADVISE_ENC_NAME_BIT) & 0xFF
    with image.open("r+b") as stream:
        stream.seek(4096 * inode.blkaddr)
        stream.write(block)


def plain_child(image: Path, kind: Callable[[Inode], bool] = lambda inode: inode.is_file) -> tuple[str, Inode]:
    """A file in an encrypted directory that is made plain, and that directory's name."""
    name = _two(image)[0]
    file = next(inode for inode in children(image, name) if kind(inode) and not inode.has_inline_data)
    make_plain(image, file)
    return name, file


def test_a_plain_file_in_an_encrypted_directory_goes_to_lost_found(image: Path) -> None:
    _, file = plain_child(image)
    finding = only(image)
    assert finding.ino == file.ino
    assert "it is not encrypted, and its directory is" in finding.message
    said = f2("fsck", image, "-y").text
    assert f"I042 {finding.where}: taken out of it, for lost+found" in said
    assert f"named '#{file.ino}' in directory" in said
    assert_silent(image)
    with open_volume(image) as volume:
        moved = volume.path(f"/lost+found/#{file.ino}").inode
        assert moved.ino == file.ino
        assert moved.i_size == file.i_size
        assert not moved.encrypted
    assert judges.fsck(image).rc == 0


def test_a_plain_directory_in_an_encrypted_one_goes_there_with_all_that_is_in_it(image: Path) -> None:
    _, directory = plain_child(image, lambda inode: inode.is_dir)
    with open_volume(image) as volume:
        inside = sorted(entry.dentry.ino for entry in volume.listdir(volume.nodes.inode(directory.ino)))
    assert inside
    assert codes(examine(image))["I042"] == 1
    assert repair(image).complete
    assert_silent(image)
    with open_volume(image) as volume:
        moved = volume.path(f"/lost+found/#{directory.ino}").inode
        assert sorted(entry.dentry.ino for entry in volume.listdir(moved)) == inside


def test_a_careful_repair_leaves_a_plain_file_where_it_is(image: Path) -> None:
    _, file = plain_child(image)
    before = image.read_bytes()
    assert f2("fsck", image, "-p").code
    assert image.read_bytes() == before
    assert only(image).ino == file.ino


def test_a_directory_whose_context_alone_is_damaged_keeps_all_that_is_in_it(image: Path) -> None:
    """Of the directory itself the context is gone, or another: what is in it was not hit."""
    name = _two(image)[0]
    inode, inside = top(image, name), sorted(child.ino for child in children(image, name))
    context, block = context_of(image, inode), inode.block.tobytes()
    with image.open("r+b") as stream:
        stream.seek(4096 * inode.blkaddr + block.index(context) - 29)
        stream.write(bytes(29 + len(context)))
    assert repair(image).complete
    assert sorted(child.ino for child in children(image, name)) == inside
    with open_volume(image) as volume:
        assert not any(entry.name == b"lost+found" for entry in volume.listdir(volume.root.inode))


def test_a_plain_directory_that_seems_encrypted_keeps_its_files(image: Path) -> None:
    """Mark and context on a directory whose names are text, and all that is in it plain: nothing else speaks for it."""
    f2("mkdir", f"{image}:/plain")
    f2("touch", f"{image}:/plain/one", f"{image}:/plain/two")
    donor = top(image, _two(image)[0])
    context, block = context_of(image, donor), donor.block.tobytes()
    victim = top(image, "plain")
    changed, at = bytearray(victim.block.tobytes()), block.index(context) - 29
    changed[at : at + 29 + len(context)] = block[at : at + 29 + len(context)]
    changed[2] |= FADVISE_ENCRYPT_BIT
    changed[3] |= F2FS_INLINE_XATTR
    with image.open("r+b") as stream:
        stream.seek(4096 * victim.blkaddr)
        stream.write(changed)
    assert set(codes(examine(image))) == {"I042"}
    before = image.read_bytes()
    assert not repair(image).complete
    assert image.read_bytes() == before


def test_a_file_without_its_context_goes_to_lost_found_too(image: Path) -> None:
    """As a plain one it would not open, either; and it holds up no other repair."""
    first, second = _two(image)
    file = next(inode for inode in children(image, first) if inode.is_file and not inode.has_inline_data)
    block, context = file.block.tobytes(), context_of(image, file)
    at = block.index(context) - 29
    with image.open("r+b") as stream:
        stream.seek(4096 * file.blkaddr + at)
        stream.write(bytes(29 + len(context)))
    change(image, top(image, second), flipped(9))
    assert dict(codes(examine(image))) == {"I025": 1, "I042": 1}
    careful = images.copy_sparse(image, image.with_name("careful"))
    f2("fsck", careful, "-p")
    assert dict(codes(examine(careful))) == {"I025": 1}
    assert repair(image).complete
    assert_silent(image)
    with open_volume(image) as volume:
        assert volume.path(f"/lost+found/#{file.ino}").inode.ino == file.ino


def test_a_directory_and_its_only_file_both_come_back_from_what_is_above(image: Path) -> None:
    """Neither policy is that of any other inode: first the directory, then the file."""
    with open_volume(image) as volume:
        above, below = next(
            (inode, found[0])
            for _, inode, entries in volume.walk()
            if inode.encrypted
            and len(found := [entry.inode for entry in entries if isinstance(entry.inode, Inode)]) == 1
            and not found[0].is_dir
        )
    change(image, above, flipped(9))
    change(image, below, flipped(10))
    assert set(codes(examine(image))) == {"I042"}
    assert repair(image).complete
    assert_silent(image)
    assert context_of(image, above)[:-FSCRYPT_NONCE_SIZE] == context_of(image, below)[:-FSCRYPT_NONCE_SIZE]


# -- the kernel -------------------------------------------------------------------------------------------------------

WALK = """
import errno, fcntl, hashlib, json, os, struct, sys
mount, keys, out = sys.argv[1], json.load(open(sys.argv[2])), sys.argv[3]
folded = set()
for name in os.listdir(mount):
    fd = os.open(os.path.join(mount, name), os.O_RDONLY)
    if os.path.isdir(fd) and name in {key["dir"] for key in keys}:
        try:
            fcntl.ioctl(fd, 0x40086602, struct.pack("<Q", 0x40000000))
        except OSError as error:
            folded.add(errno.errorcode[error.errno])
    os.close(fd)
top = os.open(mount, os.O_RDONLY)
for key in keys:
    raw = bytes.fromhex(key["key"])
    which = bytes.fromhex(key.get("identifier") or key["descriptor"])
    spec = struct.pack("<II", 2 if key["version"] == 2 else 1, 0) + which.ljust(32, b"\\0")
    fcntl.ioctl(top, 0xC0506617, bytearray(spec + struct.pack("<II32x", len(raw), 0) + raw))
seen = {"chattr +F": sorted(folded)}
for above, dirs, files in os.walk(mount):
    for name in sorted(dirs + files):
        path = os.path.join(above, name)
        shown = os.path.relpath(path, mount)
        try:
            if os.path.islink(path):
                seen[shown] = os.readlink(path)
            elif os.path.isfile(path):
                seen[shown] = hashlib.sha256(open(path, "rb").read()).hexdigest()
            else:
                seen[shown] = os.lstat(path).st_mode
        except OSError as error:
            seen[shown] = errno.errorcode[error.errno]
json.dump(seen, open(out, "w"))
"""
SCRIPT = """
set -e
for n in 0 1 2; do
    mkdir /mnt/$n; mount -t f2fs ${IMAGES[$n]} /mnt/$n
    python3 /share/walk.py /mnt/$n /share/keys.json $OUT/$n.json
    umount /mnt/$n
done
"""


def test_the_kernel_opens_again_what_it_refused(guest: Guest, image: Path, tmp_path: Path) -> None:
    """Each kind of policy, another byte of each; and without a key it lets nobody fold names."""
    case = images.reference("fscrypt")
    damaged = images.copy_sparse(image, tmp_path / "damaged")
    for number, name in enumerate(names(damaged)):
        inode = top(damaged, name)
        size = len(context_of(damaged, inode)) - FSCRYPT_NONCE_SIZE
        change(damaged, inode, flipped(1 + number % (size - 1)))
    repaired = images.copy_sparse(damaged, tmp_path / "repaired")
    assert repair(repaired).complete
    files = {"walk.py": WALK, "keys.json": json.dumps(json.loads(case.text("keys.json"))["keys"])}
    result = guest.run(SCRIPT, [image, damaged, repaired], files=files, timeout=600).must_succeed()
    whole, refused, again = (result.json(f"{number}.json") for number in range(3))
    assert whole["chattr +F"] == ["ENOKEY"]
    assert again == whole
    assert len(whole) > 500
    assert refused != whole


def test_the_kernel_opens_a_plain_file_in_lost_found_that_it_refused(guest: Guest, image: Path, tmp_path: Path) -> None:
    case = images.reference("fscrypt")
    damaged = images.copy_sparse(image, tmp_path / "damaged")
    _, file = plain_child(damaged)
    repaired = images.copy_sparse(damaged, tmp_path / "repaired")
    assert repair(repaired).complete
    files = {"walk.py": WALK, "keys.json": json.dumps(json.loads(case.text("keys.json"))["keys"])}
    result = guest.run(SCRIPT, [image, damaged, repaired], files=files, timeout=600).must_succeed()
    whole, refused, again = (result.json(f"{number}.json") for number in range(3))
    (path,) = (path for path in whole if refused[path] != whole[path])
    assert refused[path] == "EPERM"
    with open_volume(repaired) as volume:
        content = hashlib.sha256(volume.path(f"/lost+found/#{file.ino}").read()).hexdigest()
    moved = {"lost+found", f"lost+found/#{file.ino}"}
    assert again[f"lost+found/#{file.ino}"] == content
    assert {path: seen for path, seen in again.items() if path not in moved} == {
        name: seen for name, seen in whole.items() if name != path
    }


def test_the_kernel_opens_in_lost_found_what_has_another_policy(guest: Guest, image: Path, tmp_path: Path) -> None:
    """Its content stays unknown: the test has given it the key of others."""
    case = images.reference("fscrypt")
    damaged = images.copy_sparse(image, tmp_path / "damaged")
    first, second = _two(damaged)
    file = next(inode for inode in children(damaged, first) if inode.is_file)
    change(damaged, file, policy_of(context_of(damaged, top(damaged, second))))
    repaired = images.copy_sparse(damaged, tmp_path / "repaired")
    assert repair(repaired).complete
    files = {"walk.py": WALK, "keys.json": json.dumps(json.loads(case.text("keys.json"))["keys"])}
    result = guest.run(SCRIPT, [image, damaged, repaired], files=files, timeout=600).must_succeed()
    whole, refused, again = (result.json(f"{number}.json") for number in range(3))
    (path,) = (path for path in whole if refused[path] != whole[path])
    assert refused[path] == "EPERM"
    assert len(again[f"lost+found/#{file.ino}"]) == 64  # its sha256
    moved = {"lost+found", f"lost+found/#{file.ino}"}
    assert {seen: again[seen] for seen in again if seen not in moved} == {
        seen: whole[seen] for seen in whole if seen != path
    }

"""Sets of hashes: those of other tools are read, those written they check; known files are marked or left out."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import subprocess
from pathlib import Path

import pytest

import f2tools
from tests.dump.craft import f2
from tests.judges import need_tool

CONTENTS = {
    "a.txt": b"hello\n",
    "sub/b,c.bin": bytes(range(256)) * 40,
    "sub/sparse": bytes(50_000) + b"end",
    "x\\y": b"?",
}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A volume with CONTENTS, `same` as a.txt, and a deleted file."""
    directory = tmp_path_factory.mktemp("known")
    for name, content in {**CONTENTS, "same": CONTENTS["a.txt"]}.items():
        path = directory / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert f2("mkfs", "-q", directory / "image", "--size", "64M", "--from", directory / "in").code == 0
    with f2tools.open(directory / "image", write=True) as volume:
        root = volume.root.inode.ino
        volume.write(volume.create(root, b"secret", 0o644), 0, b"secret" * 2000)
        volume.sync()
        volume.unlink(root, b"secret")
    return directory / "image"


def rows(*words: object) -> dict[str, dict[str, object]]:
    return {one["path"]: one for one in map(json.loads, f2("hashes", *words, "--json").out.splitlines())}


def test_the_hashes_are_those_of_the_files(image: Path) -> None:
    found = rows(image)
    for name, content in CONTENTS.items():
        one = found[f"/{name}"]
        assert (one["size"], one["state"]) == (len(content), "live")
        assert one["md5"] == hashlib.md5(content, usedforsecurity=False).hexdigest()
        assert one["sha256"] == hashlib.sha256(content).hexdigest()
    assert found["/secret"]["state"] == "deleted"
    assert found["/secret"]["sha1"] == hashlib.sha1(b"secret" * 2000, usedforsecurity=False).hexdigest()
    assert "/secret" not in rows(image, "--living")
    assert set(rows(image, "--deleted")) == {"/secret"}


@pytest.mark.parametrize("name", ["md5", "sha1", "sha256"])
def test_what_is_written_the_sum_programs_check(image: Path, tmp_path: Path, name: str) -> None:
    assert f2("hashes", image, "--living", "--format", name, "-o", tmp_path / "sums").code == 0
    done = subprocess.run(
        [need_tool(f"{name}sum"), "--strict", "-c", tmp_path / "sums"], cwd=image.parent / "in", capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(CONTENTS) + 1


def sets_of_a(tmp_path: Path) -> dict[str, str]:
    """Sets that know a.txt, as different programs write them."""
    md5, sha1, sha256 = (hashlib.new(n, CONTENTS["a.txt"]).hexdigest() for n in ("md5", "sha1", "sha256"))
    return {
        "md5sum": f"{md5}  a.txt\n", "binary": f"{sha1} *a.txt\n",
        "list": f"# known\n{'0' * 64}\n{sha256.upper()}\n",
        "hashdeep": f"%%%% HASHDEEP-1.0\n%%%% size,md5,sha256,filename\n## $ hashdeep a,b\n6,{md5},{sha256},a,b.txt\n",
        "nsrl": '"SHA-1","MD5","CRC32","FileName","FileSize"\n'
        f'"{sha1.upper()}","{md5.upper()}","0","a ""b"",c.txt",6\n',
    }  # fmt: skip


@pytest.mark.parametrize("form", ["md5sum", "binary", "list", "hashdeep", "nsrl"])
def test_sets_of_all_forms_are_read(image: Path, tmp_path: Path, form: str) -> None:
    known = tmp_path / f"{form}.set"
    known.write_text(sets_of_a(tmp_path)[form])
    assert set(rows(image, "--known", known, "--only-known")) == {"/a.txt", "/same"}
    found = rows(image, "--known", known)
    assert found["/same"]["known"] == [known.name]
    assert found["/secret"]["known"] == []
    assert "/a.txt" not in rows(image, "--known", known, "--hide-known")


def test_a_name_with_a_newline_spoils_no_set_of_md5deep(image: Path, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text(f"{'0' * 32}  /two\nlines\n{sets_of_a(tmp_path)['md5sum']}")
    done = f2("hashes", image, "--known", known, "--only-known", "--json")
    assert done.code == 0
    assert len(done.out.splitlines()) == 2
    assert done.err == f"f2tools: {known}: lines without a hash, as a name with a newline leaves them: 1\n"
    known.write_text(f"{'0' * 32}\nlines\n")
    assert f2("hashes", image, "--known", known).code == 2


def test_what_is_written_is_read_again(image: Path, tmp_path: Path) -> None:
    for form in ("hashdeep", "nsrl", "sha1"):
        assert f2("hashes", image, "--format", form, "-o", tmp_path / form).code == 0
        assert rows(image, "--known", tmp_path / form, "--hide-known") == {}
    table = list(csv.DictReader(io.StringIO((tmp_path / "nsrl").read_text())))
    assert {row["FileName"] for row in table} >= {"a.txt", "b,c.bin", "secret"}


def test_known_deleted_files_are_marked_or_left_out(image: Path, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text(hashlib.md5(b"secret" * 2000, usedforsecurity=False).hexdigest())
    assert "known by known" in f2("undelete", image, "--known", known).text
    hidden = f2("undelete", image, "--known", known, "--hide-known")
    assert "secret" not in hidden.text
    assert "1 known and left out" in hidden.err
    (one,) = [json.loads(line) for line in f2("undelete", image, "--known", known, "--json").out.splitlines()]
    assert one["known"] == ["known"]


def test_a_file_that_is_no_set_is_refused_with_the_line(image: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("0" * 32 + "\nhello world\n")
    done = f2("hashes", image, "--known", tmp_path / "text")
    assert (done.code, "text, line 2: no MD5" in done.err) == (2, True)
    assert f2("hashes", image, "--hide-known").code == 2


def test_a_table_of_hashes_with_a_quote_that_is_left_open_is_refused(image: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text('MD5,name\nd41d8cd98f00b204e9800998ecf8427e,x\n"' + "x" * 300_000)
    done = f2("hashes", image, "--known", bad)
    assert (done.code, "bad, line 3: field larger" in done.err) == (2, True)


def test_holes_without_end_are_not_hashed_and_that_is_told(image: Path, tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(image.read_bytes())
    with f2tools.open(path, write=True) as volume:
        root = volume.root.inode.ino
        volume.write(volume.create(root, b"far", 0o644), 3 << 40, b"end")
        volume.truncate(volume.create(root, b"long", 0o644), 3 << 40)
    run = f2("hashes", path, "--living", "--json")
    assert run.code == 1
    said = [line.split(" bytes")[0] for line in run.err.splitlines()]
    assert said == ["f2tools: /far: not hashed: 3,298,534,883,331", "f2tools: /long: not hashed: 3,298,534,883,328"]
    assert {"/a.txt", "/sub/sparse"} <= set(rows(path, "--living"))
    with f2tools.open(path, write=True) as volume:
        volume.sync()
        volume.unlink(root, b"far")
    run = f2("hashes", path, "--deleted", "--json")
    assert run.code == 1
    assert run.err.startswith("f2tools: /far: not hashed: 3,298,534,883,331 bytes with more holes than")
    assert b'"path": "/secret"' in run.out

"""Images and traces that URLs name are read as files are, from real servers, in few and small pieces."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread

import numpy as np
import pytest
from fsspec.implementations.sftp import SFTPFileSystem

from f2tools.blktrace.ranges import cuts_of
from f2tools.device import open_device
from f2tools.device.media import remote
from f2tools.device.media.image import open_image
from f2tools.device.media.remote import RemoteDevice, cached_in, open_remote, without_credentials
from f2tools.errors import DeviceError, F2fsError, Gone
from f2tools.trace import analyze as trace_analysis
from f2tools.trace import pieces
from tests.device.servers import KEY, SECRET, requests, s3, sftp, web
from tests.dump.craft import f2
from tests.images import copy_sparse, reference
from tests.trace import traces

pytestmark = pytest.mark.xdist_group("remote")
MIB = 1 << 20


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the servers serve: an image, the same in a zip, a trace, a volume of 1 TiB."""
    at = tmp_path_factory.mktemp("served") / "bucket"
    at.mkdir()
    image = copy_sparse(reference("crash-rename-only").path, at / "card.img")
    with zipfile.ZipFile(at / "cards.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(image, "card.img")
    prefix = traces.unpacked("f2fs-varmail", at)
    for path in prefix.parent.iterdir():
        shutil.move(path, at / path.name)
    assert f2("trace", "export", at / "x", "-o", at / "parquet").code == 0
    with zipfile.ZipFile(at / "exports.zip", "w") as archive:
        for path in sorted((at / "parquet").rglob("*.*")):
            archive.write(path, path.relative_to(at))
    assert f2("mkfs", "-q", at / "big.img", "--size", "1T").code == 0
    return at


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nginx")


@pytest.fixture(scope="module")
def base(directory: Path, log: Path) -> Iterator[str]:
    with web(directory, log) as address:
        yield address


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PAUSE_SECONDS", 0.01)


def same(*command: object, url: str, path: Path) -> None:
    """The command says of the URL what it says of the file, but that a copy is to be recovered."""
    there, here = (f2(*command, where, "--json") for where in (url, path))
    copied = "a URL is not written to: make a raw copy of it, in which `f2tools recover --apply COPY`"
    said = there.err.replace(copied, f"`f2tools recover --apply {path}`").replace(url, str(path))
    assert (there.code, said) == (here.code, here.err)
    assert there.out.replace(url.encode(), os.fsencode(path)) == here.out


@pytest.mark.parametrize("command", ["dump info", "fsck", "dump manifest", "recover"])
def test_a_command_says_of_a_url_what_it_says_of_the_file(command: str, base: str, directory: Path) -> None:
    words = command.split()
    if command == "dump manifest":
        there, here = (f2(*words, where) for where in (f"{base}/card.img", directory / "card.img"))
        assert (there.code, there.out) == (here.code, here.out)
    else:
        same(*words, url=f"{base}/card.img", path=directory / "card.img")


def test_info_of_a_volume_of_1_tib_reads_little_of_it(base: str, directory: Path, log: Path) -> None:
    before = requests(log)
    same("dump", "info", url=f"{base}/big.img", path=directory / "big.img")
    answers = requests(log)[len(before) :]
    assert sum(size for _, _, size in answers) < 32 * MIB
    assert sum(size for _, _, size in answers) < MIB
    assert {status for method, status, _ in answers if method == "GET"} == {206}


def test_a_member_of_a_zip_on_a_server_is_an_image(base: str, directory: Path) -> None:
    url = f"zip://card.img::{base}/cards.zip"
    assert json.loads(f2("dump", "info", url, "--json").out)["uuid"] == info(directory / "card.img")["uuid"]


def info(path: Path) -> dict[str, object]:
    return json.loads(f2("dump", "info", path, "--json").out)


def test_an_image_in_s3_is_read_with_the_key_of_the_environment(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3(directory.parent) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        same("fsck", url="s3://bucket/card.img", path=directory / "card.img")
        trace = f2("trace", "analyze", "s3://bucket/x", "--json")
        assert numbers(trace.out) == analysis(directory / "x")
        assert numbers(f2("trace", "analyze", "s3://bucket/parquet", "--json").out) == analysis(directory / "x")
        fleet_like = remote.expand("s3://bucket/*.img")
        assert fleet_like == ["s3://bucket/big.img", "s3://bucket/card.img"]
        assert f2("dump", "info", "s3://bucket/none.img").err.count("there is no such file") == 1
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
        from s3fs import S3FileSystem

        S3FileSystem.clear_instance_cache()
        refused = f2("dump", "info", "s3://bucket/card.img")
        assert refused.code == 8
        assert "can't be read" in refused.err
        assert KEY not in refused.err
        S3FileSystem.clear_instance_cache()


def test_an_image_and_a_trace_are_read_over_sftp_with_the_key_of_the_user(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with sftp(tmp_path) as (address, home):
        base = f"{address}{directory}"
        monkeypatch.setenv("HOME", str(home))
        there, here = (f2("fsck", name, "--json") for name in (f"{base}/card.img", directory / "card.img"))
        assert (there.code, there.out.splitlines()[:-1]) == (here.code, here.out.splitlines()[:-1])
        assert numbers(f2("trace", "analyze", f"{base}/x", "--json").out) == analysis(directory / "x")
        found = f2("fleet", "info", f"{base}/card*.img", "--jobs", 1, "-o", tmp_path / "out.parquet", "--json")
        assert json.loads(found.out)["ok"] == 1, found.out
        gone = f2("dump", "info", f"{base}/none.img")
        assert (gone.code, gone.err.count("there is no such file"), len(gone.err.splitlines())) == (8, 1, 1)
        monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
        SFTPFileSystem.clear_instance_cache()
        refused = f2("dump", "info", f"{base}/card.img")
        assert (refused.code, len(refused.err.splitlines())) == (8, 1)
        assert "can't be read" in refused.err
        for said in (there, found, gone, refused):
            assert "a-password" not in said.text + said.err
        SFTPFileSystem.clear_instance_cache()


@pytest.mark.parametrize("command", ["fsck", "fsck --json", "recover", "recover --json", "doctor --json", "info"])
def test_a_command_names_an_image_without_the_password_of_its_url(command: str, base: str) -> None:
    done = f2(*command.split(), f"{base.replace('//', '//me:secret-word@')}/card.img")
    assert done.code == 0, done.err
    assert "/card.img" in done.text
    assert "secret-word" not in done.text + done.err


def test_what_a_google_bucket_needs_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    done = f2("dump", "info", "gs://bucket/card.img")
    assert (done.code, len(done.err.splitlines())) == (8, 1)
    assert "gs://bucket/card.img: " in done.err
    assert "install gcsfs" in done.err


def numbers(report: bytes) -> dict[str, object]:
    """A report without the names of what it is about."""
    return {name: value for name, value in json.loads(report).items() if name not in ("trace", "trace_files")}


def analysis(path: Path) -> dict[str, object]:
    return numbers(f2("trace", "analyze", path, "--json").out)


@pytest.mark.parametrize("name", ["x.blktrace.0", "listed/x", "listed/"])
def test_a_trace_behind_a_url_gives_the_same_report(name: str, base: str, directory: Path) -> None:
    done = f2("trace", "analyze", f"{base}/{name}", "--json")
    here = directory / name.removeprefix("listed/") if name != "listed/" else directory / "x"
    assert numbers(done.out) == analysis(here)


@pytest.mark.parametrize("name", ["{}/parquet", "{}/listed/parquet/", "zip://parquet::{}/exports.zip"])
def test_an_export_behind_a_url_gives_the_same_report(name: str, base: str, directory: Path) -> None:
    done = f2("trace", "analyze", name.format(base), "--json")
    assert done.code == 0, done.err
    assert numbers(done.out) == analysis(directory / "x")


def test_a_trace_behind_a_url_is_cut_as_files_are(base: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_analysis, "cuts_of", lambda files: cuts_of(files, 40 << 10))
    joined: list[int] = []
    real = pieces.joined
    monkeypatch.setattr(pieces, "joined", lambda *given: joined.append(1) or real(*given))
    alone = analysis(directory / "x")
    for jobs in (1, 3):
        done = f2("trace", "analyze", f"{base}/listed/x", "--json", "--jobs", jobs)
        assert numbers(done.out) == alone
    assert joined


def test_blocks_are_read_together_and_not_twice(base: str, directory: Path, log: Path) -> None:
    with open_remote(f"{base}/card.img") as there, open_image(directory / "card.img") as here:
        wanted = np.array([900, 3, 2, 901, 5000, 4, 3, 700])
        assert (there.read_blocks(wanted, 4096) == here.read_blocks(wanted, 4096)).all()
        assert there.bytes_read <= 4 * remote.BLOCK
        count = there.requests
        assert (there.read_blocks(wanted, 4096) == here.read_blocks(wanted, 4096)).all()
        assert there.requests == count
        whole = there.read_range(0, 4096, 4096)
        assert (whole == here.read_range(0, 4096, 4096)).all()
        assert there.requests - count <= 10  # 16 MiB in pieces of up to 4


def test_memory_of_a_remote_image_is_bounded(base: str, directory: Path) -> None:
    with open_remote(f"{base}/card.img") as there, open_image(directory / "card.img") as here:
        for offset in range(0, there.size_bytes - MIB, 3 * MIB):
            assert there.pread(offset + 5, MIB) == here.pread(offset + 5, MIB)
        assert len(there._blocks) <= remote.BLOCKS
        assert there.pread(there.size_bytes - 7, 7) == here.pread(here.size_bytes - 7, 7)
        with pytest.raises(DeviceError, match="past its end"):
            there.pread(there.size_bytes - 7, 8)


def test_what_a_read_needs_is_kept_until_it_is_done(
    base: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "BLOCKS", 128)
    size, count = remote.BLOCK, 128
    with open_remote(f"{base}/big.img") as there:
        there.pread(0, size)
        for number in range(2, count + 1):
            there.pread(number * size, size)
        assert there.pread(0, 2 * size) == (directory / "big.img").open("rb").read(2 * size)
        assert len(there._blocks) == count


def test_a_cache_serves_the_next_command(base: str, directory: Path, log: Path, tmp_path: Path) -> None:
    url = f"{base}/card.img"
    first = f2("fsck", url, "--cache", tmp_path / "cache", "--json")
    before = requests(log)
    assert f2("fsck", url, "--cache", tmp_path / "cache", "--json").out == first.out
    assert [answer for answer in requests(log)[len(before) :] if answer[0] == "GET"] == []


def test_a_cache_is_not_used_for_a_file_that_has_changed(base: str, directory: Path, tmp_path: Path) -> None:
    name = directory / "changing.img"
    said = []
    for label in ("ONE", "OTHER"):
        assert f2("mkfs", "-q", name, "--size", "64M", "--label", label, "--force").code == 0
        os.utime(name, (1_700_000_000 + len(label),) * 2)
        done = f2("dump", "info", f"{base}/changing.img", "--cache", tmp_path, "--json")
        said.append(json.loads(done.out)["label"])
    assert said == ["ONE", "OTHER"]


@pytest.mark.parametrize(("chain", "keep"), [("", False), ("", True), ("zip://card.img::", False)])
@pytest.mark.parametrize("length", [4096, 9 * MIB])
def test_a_file_that_is_replaced_while_it_is_read_is_not_read_on(
    chain: str, keep: bool, length: int, base: str, directory: Path, tmp_path: Path
) -> None:
    served, other = directory / "replaced", directory / "to-replace-it"
    for path, seed in ((served, 1), (other, 2)):
        content = np.random.default_rng(seed).bytes(24 * MIB)
        path.write_bytes(content)
        if chain:
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("card.img", content)
        os.utime(path, (1_700_000_000 + seed,) * 2)
    with cached_in(str(tmp_path / "cache")) if keep else nullcontext():
        there = open_remote(f"{chain}{base}/replaced")
    with there:
        there.pread(MIB, 4096)
        os.replace(other, served)
        with pytest.raises(Gone, match="changed while it was read: its ETag was"):
            there.pread(10 * MIB, length)
    with open_remote(f"{base}/replaced") as again:
        again.pread(0, 4096)


def test_nothing_is_written_to_a_url(base: str, directory: Path) -> None:
    before = (directory / "card.img").read_bytes()
    for command in (["label", f"{base}/card.img", "X"], ["clean", f"{base}/card.img"]):
        done = f2(*command)
        assert (done.code != 0, "a URL is only read" in done.err) == (True, True)
    assert (directory / "card.img").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none.img", "there is no such file"),
        ("secret/card.img", "can't be read"),
        ("whole/card.img", "simplecache::"),
        ("card.img@7", "there is no partition"),
    ],
)
def test_what_a_server_refuses_is_said_with_its_url(name: str, said: str, base: str) -> None:
    done = f2("dump", "info", f"{base}/{name}")
    assert done.code in (2, 8)
    assert said in done.err
    assert base in done.err


def test_a_server_without_ranges_has_not_gone_away(base: str) -> None:
    with open_remote(f"{base}/whole/card.img") as there:
        for at in range(1, 1 + remote.GIVEN_UP):
            with pytest.raises(Gone, match=r"whole files only; copy it, or name it simplecache::[^; ]*$"):
                there.pread(at * MIB, 10)


def test_a_server_that_is_busy_is_asked_again(base: str, log: Path) -> None:
    before = len(requests(log))
    done = f2("dump", "info", f"{base}/busy/card.img")
    assert (done.code, "503" in done.err) == (8, True)
    assert len(requests(log)) - before >= remote.TRIES


@pytest.mark.parametrize("answer", ["", "HTTP/1.1 141 Said\r\nContent-Length: 9000000\r\n\r\n"])
def test_a_server_that_says_nothing_more_is_not_waited_for(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SILENT_SECONDS", 1)
    monkeypatch.setattr(remote, "REQUEST_SECONDS", 2)
    asked = []

    def serve() -> None:
        with suppress(OSError):  # at the end it is closed
            while True:
                connection, _ = there.accept()
                asked.append(connection)  # which keeps it open
                with suppress(OSError):  # nobody reads all of it
                    connection.sendall(answer.encode() + bytes(9_000_000 if answer else 0))

    with socket.create_server(("127.0.0.1", 0)) as there:
        Thread(target=serve, daemon=True).start()
        done = f2("dump", "info", f"http://127.0.0.1:{there.getsockname()[1]}/card.img")
        assert (done.code, "can't be read: there was no answer in time" in done.err) == (8, True), done.err
        assert len(asked) <= 2, "it is asked for the size in two ways, and each once"
        for connection in asked:
            connection.close()


SERVED = np.random.default_rng(1).bytes(12 * MIB)


@contextmanager
def own_web(
    send: Callable[[Callable[[bytes], object], bytes], None], head: Callable[[], dict[str, str]] = dict
) -> Iterator[str]:
    """A web server of which `send` answers to what asks for a part of SERVED, below such a `head`; the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(SERVED)))
            self.send_header("Accept-Ranges", "bytes")
            self.end_headers()

        def do_GET(self) -> None:
            first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            self.send_response(206)
            self.send_header("Content-Length", str(last + 1 - first))
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(SERVED)}")
            for name, value in head().items():
                self.send_header(name, value)
            self.end_headers()
            try:
                send(self.wfile.write, SERVED[first : last + 1])
            except OSError:  # who asked has gone, or is to be left without the rest
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/card.img"
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        (['"one"'], ""),
        (['W/"one"'], "its Last-Modified was"),
        (['W/"one"', '"one"'], "its Last-Modified was"),
        (['"one"', '"other"'], "its ETag was.*, or several servers behind one name differ in it"),
    ],
)
def test_a_strong_etag_alone_says_whether_a_file_is_the_same(tags: list[str], said: str) -> None:
    """With other times of one server's copies, say."""
    count = itertools.count()

    def head() -> dict[str, str]:
        number = next(count)
        return {"ETag": tags[number % len(tags)], "Last-Modified": f"Fri, 27 Nov 2026 02:00:{number:02} GMT"}

    with own_web(lambda write, data: write(data), head) as url, open_remote(url) as there:
        assert there.pread(0, 4096) == SERVED[:4096]
        with pytest.raises(Gone, match=said) if said else nullcontext():
            assert there.pread(MIB, 4096) == SERVED[MIB : MIB + 4096]


@pytest.mark.parametrize("length", [4096, 9 * MIB])
def test_one_request_without_an_answer_is_tried_again(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SILENT_SECONDS", 1)
    asked, end = list[int](), Event()

    def send(out: Callable[[bytes], object], part: bytes) -> None:
        asked.append(len(part))
        if len(asked) == 2:
            end.wait()
        out(part)

    with own_web(send) as url, open_remote(url) as there:
        assert there.pread(MIB, 10) == SERVED[MIB : MIB + 10]
        assert there.pread(2 * MIB, length) == SERVED[2 * MIB : 2 * MIB + length]
        end.set()


@pytest.mark.parametrize("broken", [1, 2, 30])
def test_of_a_request_that_failed_nothing_is_taken_from_a_cache(
    broken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the next try, and not by the next command."""
    monkeypatch.setattr(remote, "PAUSE_SECONDS", 0)
    fails = itertools.chain([False], itertools.repeat(True, broken), itertools.repeat(False))
    cut: list[int] = []

    def send(out: Callable[[bytes], object], part: bytes) -> None:
        if next(fails):
            cut.append(len(part))
            out(part[: len(part) // 2])
            raise ConnectionError
        out(part)

    with own_web(send) as url:
        for _ in range(2):
            with cached_in(str(tmp_path)), open_remote(url) as there:
                for offset in range(MIB, 12 * MIB, 2 * MIB):
                    with suppress(DeviceError, Gone):
                        assert there.pread(offset, 300_000) == SERVED[offset : offset + 300_000]
        assert len(cut) > 0
        with cached_in(str(tmp_path)), open_remote(url) as there:
            fails = itertools.repeat(False)
            assert there.pread(0, len(SERVED)) == SERVED


def test_a_server_that_falls_silent_is_asked_once_more_and_then_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SILENT_SECONDS", 1)
    asked, end = list[int](), Event()

    def send(out: Callable[[bytes], object], part: bytes) -> None:
        asked.append(len(part))
        if len(asked) > 1:
            end.wait()
        out(part)

    with own_web(send) as url, open_remote(url) as there:
        there.pread(MIB, 10)
        for number, said in enumerate(["no answer in time", "no answer in time", "has gone away"]):
            with pytest.raises(F2fsError, match=said):
                there.pread((2 + number) * MIB, 10)
        end.set()
    assert len(asked) == 1 + 2 + 1 + 1


@pytest.mark.parametrize("length", [3 * MIB, 9 * MIB])
def test_what_is_asked_for_at_once_has_its_time_on_a_slow_line(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "REQUEST_SECONDS", 1)
    monkeypatch.setattr(remote, "SLOWEST", MIB)
    line = Lock()

    def send(out: Callable[[bytes], object], part: bytes) -> None:
        for at in range(0, len(part), MIB // 4):
            with line:  # 2 MiB a second for all
                time.sleep(0.125)
            out(part[at : at + MIB // 4])

    with own_web(send) as url, open_remote(url) as there:
        there.pread(MIB, 10)
        assert there.pread(2 * MIB, length) == SERVED[2 * MIB : 2 * MIB + length]


@pytest.mark.parametrize("length", [4096, 9 * MIB])
def test_a_server_that_dribbles_is_not_waited_for(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "REQUEST_SECONDS", 1)
    monkeypatch.setattr(remote, "SLOWEST", 6 * MIB)
    asked = list[int]()

    def send(out: Callable[[bytes], object], part: bytes) -> None:
        asked.append(len(part))
        if len(asked) == 1:
            out(part)
            return
        for at in range(len(part)):
            out(part[at : at + 1])
            time.sleep(0.1)

    with own_web(send) as url, open_remote(url) as there:
        there.pread(MIB, 10)
        begun = time.monotonic()
        with pytest.raises(DeviceError, match="no answer in time"):
            there.pread(2 * MIB, length)
        assert 0.9 < time.monotonic() - begun < 4
    assert len(asked) <= 1 + 3, "each once"


@pytest.mark.parametrize(("url", "times"), [("sftp://host/x", remote.TRIES), ("https://host/x", 1)])
def test_only_of_a_web_server_a_timeout_is_final(url: str, times: int) -> None:
    tried = list[int]()

    def do() -> None:
        tried.append(1)
        raise TimeoutError

    with pytest.raises(DeviceError, match="no answer in time"):
        remote._tried(url, do)
    assert len(tried) == times


def test_a_connection_that_breaks_is_tried_again(base: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_remote(f"{base}/card.img") as there, open_image(directory / "card.img") as here:
        real, broken = there._file.read, [2]

        def read(count: int) -> bytes:
            if broken[0]:
                broken[0] -= 1
                raise ConnectionResetError("reset")
            return real(count)

        monkeypatch.setattr(there._file, "read", read)
        assert there.pread(MIB, 4096) == here.pread(MIB, 4096)
        assert not broken[0]


def test_a_host_that_is_not_there_is_no_missing_file() -> None:
    done = f2("dump", "info", "http://user:word@127.0.0.1:9/card.img?X-Amz-Signature=abc")
    assert done.code == 8
    assert "can't be read" in done.err
    assert not [secret for secret in ("user", "word", "abc") if secret in done.err]


def test_what_a_url_holds_of_credentials_is_not_shown(base: str) -> None:
    assert without_credentials("zip://a.img::https://me:pw@h/x.zip?sig=1") == "zip://a.img::https://h/x.zip?..."
    assert without_credentials("simplecache::s3://k:s@b/x") == "simplecache::s3://b/x"
    assert without_credentials("mail@home.img") == "mail@home.img"
    host = base.removeprefix("http://")
    done = f2("dump", "info", f"http://me:word@{host}/card.img?token=abc", "--json")
    assert json.loads(done.out)["files"] == [f"{base}/card.img?..."]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_url_may_hold_another_one(scheme: str, base: str, directory: Path) -> None:
    done = f2("dump", "info", f"{base}/card.img?to={scheme}://host/x", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["uuid"] == info(directory / "card.img")["uuid"]


def test_a_partition_of_a_remote_disk_is_found(base: str, directory: Path) -> None:
    with open_device(f"{base}/card.img@+4096") as part, open_image(directory / "card.img") as here:
        assert part.pread(0, 512) == here.pread(4096, 512)


def test_an_unknown_scheme_and_a_missing_library_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Protocol not known: foo" in f2("dump", "info", "foo://x/y").err
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    done = f2("dump", "info", "http://h/x")
    assert (done.code, "pip install 'f2tools[remote]'" in done.err) == (2, True)


def test_a_remote_device_is_one_that_only_reads(base: str) -> None:
    with open_device(f"{base}/card.img") as device:
        assert isinstance(device, RemoteDevice)
        with pytest.raises(DeviceError, match="read-only"):
            device.pwrite(0, b"x")

"""What QEMU boots: a distribution kernel, an initramfs that finds the root disk, a small root disk.

Takes the newest kernel under /boot and /lib/modules that has f2fs as a module, or downloads Debian's packages; the
programs in the guest are the host's own.  Needs no root.  The result lies in a cache under a key of all that went into
it, so it is built once.
"""

# ruff: noqa: SIM905 - lists of words read better as words

from __future__ import annotations

import fcntl
import gzip
import hashlib
import lzma
import os
import re
import shutil
import stat
import struct
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import zstandard

from f2tools.errors import SeveralLines

INSIDE = Path(__file__).resolve().parent / "inside"
KEPT_SECONDS = 86400  # a guest that was not used for so long makes room for a new one
ASKED_SECONDS = 86400  # a downloaded kernel is used for so long before apt is asked again

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PYTHON = "/usr/bin/python3"
NEEDED = {
    "qemu-system-x86_64": "qemu-system-x86",
    "mkfs.ext4": "e2fsprogs",
    "depmod": "kmod",
    "busybox": "busybox-static",
    "mkfs.f2fs": "f2fs-tools",
    "bash": "bash",
}
KERNEL = "linux-image-amd64"  # depends on the current kernel
PROGRAMS_NEEDED = "bash modprobe mount umount mkfs.f2fs fsck.f2fs dump.f2fs".split()
PROGRAMS_WELCOME = (
    "resize.f2fs defrag.f2fs sload.f2fs f2fs_io f2fslabel setfattr getfattr setfacl getfacl chattr lsattr filefrag "
    "fsverity sqlite3 mkfs.ext4 mkfs.btrfs mkfs.nilfs2 nilfs-tune mount.nilfs2 umount.nilfs2 nilfs_cleanerd "
    "blkdiscard blockdev blkzone blktrace dmsetup fusermount3 losetup sfdisk dd cmp"
).split()

ROOT_DISK_MODULES = "crc32c_generic virtio_pci virtio_blk ext4 9pnet_virtio 9p".split()
MODULES = (
    "f2fs loop null_blk zram dm_mod dm_log_writes dm_flakey dm_zero dm_linear dm_snapshot quota_v2 quota_tree nls_utf8 "
    "configfs virtio_scsi sd_mod scsi_debug fuse btrfs nilfs2 nandsim jffs2 mtdblock"
).split()
# Small, and asked for by name when a compressed, encrypted or verified file is opened
MODULE_DIRECTORIES = "kernel/crypto kernel/lib kernel/arch/x86/crypto kernel/fs/unicode kernel/fs/nls".split()
STDLIB_LEFT_OUT = shutil.ignore_patterns(
    "test", "tests", "idlelib", "lib2to3", "ensurepip", "config-3*", "tkinter", "turtledemo", "__pycache__",
    "dist-packages", "site-packages", "pydoc_data", "distutils",
)  # fmt: skip


class NoGuest(SeveralLines):
    """The guest cannot be built or booted here; the message says what is missing, and what to install."""


@dataclass(frozen=True)
class Kernel:
    """A kernel image and its modules."""

    release: str
    image: Path
    modules: Path


@dataclass(frozen=True)
class Built:
    """What QEMU is given."""

    directory: Path

    @property
    def kernel(self) -> Path:
        return self.directory / "kernel"

    @property
    def initramfs(self) -> Path:
        return self.directory / "initramfs.gz"

    @property
    def root_disk(self) -> Path:
        return self.directory / "root.img"


def default_cache() -> Path:
    """Where the guest is kept by default."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "f2tools" / "guest"


def build(cache: Path | None = None, more: Path | None = None) -> Built:
    """The guest, built in `cache` if it is not there yet; NoGuest says what is missing.

    The files in the directory `more` are programs in the guest beside ours.
    """
    absent = [package for program, package in NEEDED.items() if not which(program)]
    if absent:
        names = " ".join(sorted(set(absent)))
        raise NoGuest(f"the guest needs programs that are not installed here; apt-get install {names}")
    cache = default_cache() if cache is None else cache
    cache.mkdir(parents=True, exist_ok=True)
    with lock(cache / "lock"):
        kernel = find_kernel() or download_kernel(cache)
        directory = cache / key(kernel, more)
        if not (directory / "root.img").exists():
            with tempfile.TemporaryDirectory(dir=cache, prefix="new-") as name:
                new = Path(name) / "guest"
                new.mkdir()
                _make(kernel, new, Path(name) / "root", more)
                for old in cache.glob("*/root.img"):
                    if time.time() - old.parent.stat().st_mtime > KEPT_SECONDS:  # else one may be about to boot from it
                        shutil.rmtree(old.parent)
                new.rename(directory)
        os.utime(directory)
    return Built(directory)


def which(program: str) -> Path | None:
    """Where a system program is, whatever the caller's PATH."""
    found = shutil.which(program, path=SYSTEM_PATH)
    return Path(found) if found else None


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Alone among the processes that build into the same directory."""
    with path.open("w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def key(kernel: Kernel, more: Path | None) -> str:
    """Names the guest by its kernel, the host's programs in it and the scripts here."""
    h = hashlib.sha256(kernel.release.encode())
    h.update(kernel.image.read_bytes())  # another revision has the same release, and says in its image which it is
    ours = [path for place in (INSIDE, more) if place is not None for path in sorted(place.rglob("*"))]
    for path in [Path(__file__), *(p for p in ours if p.is_file() and "__pycache__" not in p.parts)]:
        h.update(path.name.encode() + b"\0" + path.read_bytes())
    for program in [*PROGRAMS_NEEDED, *PROGRAMS_WELCOME, "busybox", PYTHON]:
        if path := which(program):
            st = path.stat()
            h.update(f"{path} {st.st_size} {st.st_mtime_ns}".encode())
    return f"{kernel.release}-{h.hexdigest()[:12]}"


# ---- the kernel ---------------------------------------------------------


def find_kernel(root: Path = Path("/")) -> Kernel | None:
    """The newest kernel installed under `root` that can mount f2fs.

    A package since Debian 13 has its modules in usr/lib, without the link at lib.  Since Debian 14, and in other
    distributions, the image lies with the modules.
    """
    found = [
        Kernel(modules.name, image, modules)
        for lib in ("lib", "usr/lib")
        for modules in root.glob(f"{lib}/modules/*")
        for image in (root / "boot" / f"vmlinuz-{modules.name}", modules / "vmlinuz")
        if os.access(image, os.R_OK) and list(modules.glob("kernel/fs/f2fs/f2fs.ko*"))
    ]
    return max(found, key=lambda kernel: _version(kernel.release), default=None)


def _version(release: str) -> list[list[int]]:
    """Greater for a newer release: the numbers of its version, then all others (7.3-amd64 < 7.3.4+deb13-amd64)."""
    version, _, rest = re.split(r"([^\d.]|$)", release, maxsplit=1)
    return [[int(n) for n in re.findall(r"\d+", part)] for part in (version, rest)]


def download_kernel(cache: Path) -> Kernel:
    """Debian's current kernel, unpacked into the cache from its packages; nothing is installed.

    One that is there is used for a day without asking apt.  Then it makes room for what apt calls current, a revision
    of the same release too; it stays where apt knows none or can't bring it.
    """
    tree = cache / "kernel"
    there, listed = find_kernel(tree), tree / "packages"
    if there and listed.exists() and time.time() - listed.stat().st_mtime < ASKED_SECONDS:
        return there
    try:
        packages = _kernel_packages()
        if not there or not listed.exists() or listed.read_text().split() != packages:
            _unpack_packages(packages, tree)
    except NoGuest:
        if not there:
            raise
    listed.touch()
    found = find_kernel(tree)
    assert found is not None
    return found


def _unpack_packages(packages: list[str], tree: Path) -> None:
    """Put the files of packages in the place of `tree`, and their names into its file `packages`."""
    with tempfile.TemporaryDirectory(dir=tree.parent, prefix="kernel-") as name:
        new = Path(name) / "tree"
        new.mkdir()
        try:
            _output("apt-get", "download", *packages, cwd=Path(name))
            for deb in Path(name).glob("*.deb"):
                _output("dpkg-deb", "-x", str(deb), str(new))
        except subprocess.CalledProcessError as e:
            raise NoGuest(f"no kernel with f2fs here, and downloading one failed: {e.stderr.strip()[-300:]}") from e
        if not find_kernel(new):
            raise NoGuest(f"no f2fs module, or no kernel, in {' '.join(packages)}")
        (new / "packages").write_text("\n".join(packages) + "\n")
        shutil.rmtree(tree, ignore_errors=True)
        new.rename(tree)


def _kernel_packages() -> list[str]:
    """The packages of Debian's current kernel, as NAME=VERSION.

    Since Debian 14 linux-image-RELEASE holds no files: it depends on the packages that do, in its own version.
    """
    if not which("apt-get") or not which("dpkg-deb"):
        raise NoGuest(
            "no kernel with f2fs under /boot and /lib/modules, and no apt-get to download one; install the kernel "
            "package of your distribution"
        )
    image = next((one for one in _exact_dependencies(KERNEL) if one.startswith("linux-image-")), None)
    if not image:
        raise NoGuest(f"apt knows no {KERNEL} (apt-get update?)")
    version = image.partition("=")[2]
    return [image, *(one for one in _exact_dependencies(image) if one.endswith(f"={version}"))]


def _exact_dependencies(package: str) -> list[str]:
    """What a package depends on in one version only, as NAME=VERSION; empty for a package that apt doesn't know."""
    try:
        shown = _output("apt-cache", "show", "--no-all-versions", package)
    except subprocess.CalledProcessError:
        return []
    depends = re.search(r"^Depends: (.*)", shown, re.MULTILINE)
    return [f"{name}={version}" for name, version in re.findall(r"(\S+) \(= (\S+)\)", depends[1] if depends else "")]


def _output(*command: str, cwd: Path | None = None) -> str:
    env = os.environ | {"PATH": SYSTEM_PATH, "LC_ALL": "C"}
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=cwd, env=env).stdout


def unpack_kernel(image: bytes) -> bytes:
    """The ELF file inside a bzImage, or the image itself where the packing is unknown: QEMU starts either.

    An ELF file is entered by PVH, without the guest unpacking it first, which under emulation saves seconds.  Where the
    payload lies is in the header of the image (Documentation/arch/x86/boot.rst).
    """
    if image[0x202:0x206] != b"HdrS":
        return image
    begin, length = struct.unpack_from("<II", image, 0x248)
    begin += (image[0x1F1] + 1) * 512  # behind the sectors of the setup
    payload = image[begin : begin + length]
    for magic, unpacking in (
        (b"\xfd7zXZ\0", lzma.LZMADecompressor()),
        (b"\x28\xb5\x2f\xfd", zstandard.ZstdDecompressor().decompressobj()),
        (b"\x1f\x8b\x08", zlib.decompressobj(zlib.MAX_WBITS | 16)),
    ):
        if payload.startswith(magic):
            try:
                elf = unpacking.decompress(payload)
            except (lzma.LZMAError, zstandard.ZstdError, zlib.error):
                return image
            return elf if unpacking.eof and elf[:4] == b"\x7fELF" else image
    return image


# ---- the root disk ------------------------------------------------------


def _make(kernel: Kernel, target: Path, root: Path, more: Path | None) -> None:
    (target / "kernel").write_bytes(unpack_kernel(kernel.image.read_bytes()))
    _lay_out(root, more)
    modules = _copy_modules(kernel, root)
    _copy_programs(root)
    _copy_python(root)
    initramfs = _initramfs(modules, which("busybox"))
    (target / "initramfs.gz").write_bytes(gzip.compress(initramfs, 1, mtime=0))
    bytes_used = sum(p.lstat().st_size + 4096 for p in root.rglob("*"))
    disk = target / "root.img"
    with disk.open("wb") as f:
        f.truncate((bytes_used * 5 // 4 + (24 << 20)) >> 20 << 20)
    _output("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", "-d", str(root), str(disk))


def _lay_out(root: Path, more: Path | None) -> None:
    for name in "proc sys dev tmp run mnt share etc root var usr/bin usr/sbin usr/lib usr/lib64 usr/local/bin".split():
        (root / name).mkdir(parents=True)
    for name in "bin sbin lib lib64".split():
        (root / name).symlink_to(f"usr/{name}")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/mtab").symlink_to("/proc/self/mounts")
    _install(INSIDE / "init", root / "usr/sbin/guest-init", 0o755)
    for path in [path for place in (INSIDE / "bin", more) if place is not None for path in place.iterdir()]:
        if path.is_file():
            _install(path, root / "usr/local/bin" / path.name, 0o755)
    locale = Path("/usr/lib/locale/C.utf8")
    if locale.is_dir():
        shutil.copytree(locale, root / "usr/lib/locale/C.utf8")


def _install(source: Path, target: Path, mode: int | None = None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    # Without the set-uid bit: the files belong to the user who builds, and mount must stay root's.
    target.chmod(source.stat().st_mode & 0o777 if mode is None else mode)


def _copy_programs(root: Path) -> None:
    for name in [*PROGRAMS_NEEDED, *PROGRAMS_WELCOME, PYTHON]:
        path = which(name)
        if path is not None:
            _copy_elf(path, root)
        elif name in (*PROGRAMS_NEEDED, PYTHON):
            raise NoGuest(f"{name} is not installed")
    busybox = which("busybox")
    assert busybox is not None
    _install(busybox, root / "usr/bin/busybox")
    for applet in _output(str(busybox), "--list").split():
        if not any(os.path.lexists(root / directory / applet) for directory in ("usr/bin", "usr/sbin")):
            (root / "usr/bin" / applet).symlink_to("busybox")


def _copy_elf(path: Path, root: Path) -> None:
    """A program or library with the libraries it needs, each under the name it is looked for by."""
    for file in [path, *libraries(path)]:
        name = str(file)
        if re.match(r"/(bin|sbin|lib|lib64)/", name):
            name = f"/usr{name}"
        target = root / name[1:]
        if not target.exists():
            _install(file.resolve(), target)


def libraries(path: Path) -> list[Path]:
    """The libraries that a program or a library needs."""
    done = subprocess.run(["/usr/bin/ldd", path], capture_output=True, text=True)
    return [Path(name) for name in re.findall(r"(/\S+) \(0x", done.stdout)]


def _copy_python(root: Path) -> None:
    """The host's python3 with its standard library, for the programs in inside/bin."""
    stdlib = Path(_output(PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))").strip())
    shutil.copytree(stdlib, root / str(stdlib)[1:], ignore=STDLIB_LEFT_OUT, dirs_exist_ok=True)
    for extension in (stdlib / "lib-dynload").glob("*.so"):
        for library in libraries(extension):
            _copy_elf(library, root)
    # The root disk is read-only: what isn't compiled here is compiled at each start of a program, a second of it.
    compiling = ["-m", "compileall", "-q", "-s", str(root), "--invalidation-mode", "unchecked-hash"]
    subprocess.run([PYTHON, *compiling, str(root / str(stdlib)[1:])], check=False, stdout=subprocess.DEVNULL)


# ---- modules and initramfs ----------------------------------------------


def _copy_modules(kernel: Kernel, root: Path) -> list[Path]:
    """Copy what the guest may load; returns the modules that the root disk needs, in loading order."""
    index = {_module_name(p): p for p in kernel.modules.glob("kernel/**/*.ko*")}
    target = root / "usr/lib/modules" / kernel.release
    needs = _dependencies(kernel)
    wanted = {p for directory in MODULE_DIRECTORIES for p in (kernel.modules / directory).glob("**/*.ko*")}
    for name in (*ROOT_DISK_MODULES, *MODULES):
        wanted |= {index[n] for n in [*needs(name), name] if n in index}
    wanted |= {index[n] for p in list(wanted) for n in needs(_module_name(p))}
    for path in wanted:
        _install(path, target / path.relative_to(kernel.modules))
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        _install(kernel.modules / name, target / name)
    _output("depmod", "-b", str(root), kernel.release)
    order = [n for name in ROOT_DISK_MODULES for n in [*needs(name), name] if n in index]
    return [index[n] for n in dict.fromkeys(order)]


def _module_name(path: Path) -> str:
    return path.name.split(".ko")[0].replace("-", "_")


def _dependencies(kernel: Kernel) -> Callable[[str], list[str]]:
    """A function from a module's name to the names it needs loaded first, in order."""
    with tempfile.TemporaryDirectory(prefix="depmod") as name:
        # An unpacked package has no modules.dep yet: depmod wants lib/modules/RELEASE under some root.
        base = Path(name) / "lib/modules"
        base.mkdir(parents=True)
        release = base / kernel.release
        release.mkdir()
        for entry in kernel.modules.iterdir():
            if entry.name in ("kernel", "modules.order", "modules.builtin", "modules.builtin.modinfo"):
                (release / entry.name).symlink_to(entry)
        _output("depmod", "-b", name, kernel.release)
        text = (release / "modules.dep").read_text()
    table = {}
    for line in text.splitlines():
        module, _, rest = line.partition(":")
        table[_module_name(Path(module))] = [_module_name(Path(p)) for p in reversed(rest.split())]
    return lambda name: table.get(name, [])


def _initramfs(modules: Iterable[Path], busybox: Path | None) -> bytes:
    assert busybox is not None
    names = []
    files: list[tuple[str, int, bytes]] = [
        (name, stat.S_IFDIR | 0o755, b"") for name in "bin dev mod newroot proc sys".split()
    ]
    files.append(("bin/busybox", stat.S_IFREG | 0o755, busybox.read_bytes()))
    applets = "sh mount umount insmod cat sleep switch_root".split()
    files += [(f"bin/{applet}", stat.S_IFLNK | 0o777, b"busybox") for applet in applets]
    for path in modules:
        data = path.read_bytes()
        if path.suffix == ".xz":
            data = lzma.decompress(data)
        elif path.suffix == ".zst":
            data = zstandard.ZstdDecompressor().stream_reader(data).read()
        names.append(f"{_module_name(path)}.ko")
        files.append((f"mod/{names[-1]}", stat.S_IFREG | 0o644, data))
    script = (INSIDE / "initramfs-init").read_text().replace("@MODULES@", " ".join(names))
    files.append(("init", stat.S_IFREG | 0o755, script.encode()))
    return b"".join(_cpio(files))


def _cpio(files: Iterable[tuple[str, int, bytes]]) -> Iterator[bytes]:
    """A cpio archive in the "newc" form the kernel unpacks (Documentation/driver-api/early-userspace)."""
    for ino, (name, mode, data) in enumerate([*files, ("TRAILER!!!", 0, b"")], 1):
        raw = name.encode() + b"\0"
        numbers = (ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0)
        header = b"070701" + b"".join(b"%08x" % n for n in numbers) + raw
        yield header + bytes(-len(header) % 4) + data + bytes(-len(data) % 4)

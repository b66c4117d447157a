"""The real kernel in QEMU: attach images, run a script as root, bring back what it said and wrote.

Nothing here needs root or KVM.  A boot takes 4 to 15 s under emulation, so a test should attach many images and handle
all of them in one script.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from f2tools.errors import SeveralLines
from f2tools.guest.build import Built, NoGuest, build, which

MAX_IMAGES = 24
BOOT_TIMEOUT = 180
KVM_BOOT_TIMEOUT = 30  # ten times what it takes; emulation is there in 15
NO_BOOT = "no boot"
ATTEMPTS = 3
POLL_SECONDS = 0.01
KVM_DEVICE = "/dev/kvm"
CLOCK_AT_BOOT = "2024-03-01T12:00:00"
# What costs the emulator most and the guest would rather do without: a fifth level of page tables, a check of each
# access of the kernel to user memory, string instructions byte by byte.  Together a quarter of its time.
EMULATED = ("tcg,thread=multi", "-cpu", "max,la57=off,smap=off,erms=off")
KVM = ("kvm", "-cpu", "max")
# Unknown to the kernel, which hands it to the first program as a variable: OpenSSL then hashes with plain instructions,
# three times as fast under emulation as with vectors.
FOR_EMULATED = " OPENSSL_ia32cap=0:0"
KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off tsc=reliable no_timer_check nokaslr "
    "random.trust_cpu=on cryptomgr.notests"
)


@dataclass(frozen=True)
class Result:
    """The results of a script in the guest."""

    rc: int | None
    """Exit status of the script; None after a power cut."""
    stdout: str
    stderr: str
    dmesg: str
    out: Path
    """The directory that was $OUT in the guest."""
    seconds: float

    @property
    def crashed(self) -> bool:
        """Whether the power was cut on request."""
        return self.rc is None

    def json(self, name: str) -> Any:
        """A JSON file that the script wrote to $OUT, such as a manifest."""
        return json.loads((self.out / name).read_text())

    def must_succeed(self) -> Result:
        """Itself, unless the script failed: then GuestFailed with all it said."""
        if self.rc != 0:
            raise GuestFailed(
                f"the script in the guest ended with {self.rc}\n--- stdout\n{self.stdout[-4000:]}\n--- stderr\n"
                f"{self.stderr[-4000:]}\n--- dmesg\n{self.dmesg[-4000:]}"
            )
        return self


class GuestFailed(SeveralLines):
    """The guest did not boot, hung or died."""


class NotDone(GuestFailed):
    """The script was not done within its time."""


class Guest:
    """A built guest; every `run` is a fresh boot, and runs may go on side by side."""

    def __init__(self, built: Built, work: Path) -> None:
        self._built = built
        self._work = work

    @classmethod
    def ready(cls, work: Path) -> Self:
        """Build what is missing; NoGuest says why it can't be built.  Shares and results lie under `work`."""
        return cls(build(), work)

    def run(
        self,
        script: str,
        images: Sequence[Path] = (),
        *,
        timeout: float = 300,
        files: Mapping[str, str | bytes] | None = None,
        env: Mapping[str, str] | None = None,
        memory_mib: int = 1024,
        cpus: int = 2,
        cut_after: tuple[str, float] | None = None,
    ) -> Result:
        """Boot, run `script` under bash as root, switch off.

        `images` are /dev/vda, /dev/vdb, ... in this order, and ${IMAGES[0]}, ... in the script; those without write
        permission are attached read-only.  In the script, $OUT is `Result.out`; `files` lie in /share; f2fs is loaded;
        `crash` cuts the power, as does the host `cut_after[1]` seconds after the script's `mark NAME` with
        `cut_after[0]`.  Writes that the guest's disk has acknowledged are in the image then.  `timeout` is that of the
        script, in seconds; GuestFailed if it strikes.
        """
        if len(images) > MAX_IMAGES:
            raise ValueError(f"{len(images)} images; a guest has room for {MAX_IMAGES}")
        share = Path(tempfile.mkdtemp(prefix="guest-", dir=self._work))
        prelude, drives = self._ahead(share)
        for name, data in (files or {}).items():
            (share / name).write_bytes(data.encode() if isinstance(data, str) else data)
        devices = " ".join(f"/dev/vd{chr(ord('a') + n)}" for n in range(len(images)))
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in (env or {}).items())
        drives = [("guest-root", self._built.root_disk), *drives]
        (share / "script").write_text(f"IMAGES=({devices})\n{exports}{prelude}{script}\n")
        why, late = "", False
        for attempt in range(ATTEMPTS):
            machine = ["-smp", str(cpus), "-m", str(memory_mib)]
            kvm = attempt == 0 and _kvm(self._built.directory)
            command = self._command(share, images, drives, machine, kvm=kvm)
            why, late = self._boot(share, command, KVM_BOOT_TIMEOUT if kvm else BOOT_TIMEOUT, timeout, cut_after)
            if not why:
                return _result(share / "out")
            if (share / "out" / ".started").exists():
                break  # the script has run: its images are no longer what they were
            if kvm and why.startswith(NO_BOOT):
                _kvm_boots_nothing(self._built.directory)
        console = share / "console"
        said = console.read_text(errors="replace")[-3000:] if console.exists() else ""
        partial = _read(share / "out" / ".stdout") + _read(share / "out" / ".stderr")
        raise (NotDone if late else GuestFailed)(f"{why}\n--- console\n{said}\n--- script so far\n{partial[-4000:]}")

    def _ahead(self, share: Path) -> tuple[str, list[tuple[str, Path]]]:
        """What goes ahead of every script, and further disks by serial number, for subclasses."""
        return "", []

    def _boot(
        self,
        share: Path,
        command: list[str],
        boot_timeout: float,
        timeout: float,
        cut_after: tuple[str, float] | None,
    ) -> tuple[str, bool]:
        """One boot, seen to its end; what went wrong, or nothing, and whether that is that it took too long."""
        out = share / "out"
        subprocess.run(["rm", "-rf", out], check=True)
        out.mkdir()
        with (share / "qemu").open("wb") as log:
            qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        begun, started, marked = time.monotonic(), None, None
        try:
            while qemu.poll() is None:
                now = time.monotonic()
                if started is None and (out / ".started").exists():
                    started = now
                if cut_after and marked is None and (out / f".mark-{cut_after[0]}").exists():
                    marked = now
                if (out / ".mark-crash").exists() or (cut_after and marked and now >= marked + cut_after[1]):
                    qemu.kill()
                    qemu.wait()
                    (out / ".crashed").touch()
                elif started is None and now - begun > boot_timeout:
                    return f"{NO_BOOT} within {boot_timeout:g} s", False
                elif started is not None and now - started > timeout:
                    return f"the script was not done within {timeout:g} s", True
                time.sleep(POLL_SECONDS)
        finally:
            qemu.kill()
            qemu.wait()
        (out / ".seconds").write_text(str(time.monotonic() - begun))
        if (out / ".rc").exists() or (out / ".crashed").exists():
            return "", False
        return f"QEMU ended by itself: {_read(share / 'qemu')[-2000:]}", False

    def _command(
        self, share: Path, images: Sequence[Path], others: list[tuple[str, Path]], machine: list[str], kvm: bool
    ) -> list[str]:
        built = self._built
        command = [str(which("qemu-system-x86_64")), "-accel", *(KVM if kvm else EMULATED)]
        command += [*machine, "-rtc", f"base={CLOCK_AT_BOOT}"]
        command += ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
        arguments = KERNEL_ARGUMENTS + ("" if kvm else FOR_EMULATED)
        command += ["-kernel", str(built.kernel), "-initrd", str(built.initramfs), "-append", arguments]
        command += ["-serial", f"file:{share / 'console'}"]
        command += ["-virtfs", f"local,path={share},mount_tag=share,security_model=none,multidevs=remap"]
        for n, image in enumerate(images):
            writable = image.stat().st_mode & 0o222
            command += _drive(f"disk{n}", image, "discard=unmap,detect-zeroes=off" if writable else "readonly=on")
        for name, disk in others:
            command += _drive(name, disk, "readonly=on")
        return command


def _drive(name: str, image: Path, options: str) -> list[str]:
    file = str(image.resolve()).replace(",", ",,")
    drive = f"file={file},if=none,id={name},format=raw,cache=unsafe,aio=threads,{options}"
    return ["-drive", drive, "-device", f"virtio-blk-pci,drive={name},serial={name}"]


def _kvm(built: Path) -> bool:
    """Whether there is a KVM, and none that was seen to boot nothing since this machine was started."""
    return os.access(KVM_DEVICE, os.R_OK | os.W_OK) and not _no_kvm(built).exists()


def _kvm_boots_nothing(built: Path) -> None:
    """Remember it beside the guest, for this process and those to come: in some virtual machines a KVM is offered that
    hangs at the kernel's first steps, and each boot would wait for it in vain."""
    with suppress(OSError):
        for old in built.glob(_no_kvm(built, "*").name):
            old.unlink(missing_ok=True)
        _no_kvm(built).touch()


def _no_kvm(built: Path, machine: str = "") -> Path:
    return built / f"no-kvm-{machine or _read(Path('/proc/sys/kernel/random/boot_id')).strip()}"


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _result(out: Path) -> Result:
    rc = _read(out / ".rc").strip()
    return Result(
        rc=int(rc) if rc and not (out / ".crashed").exists() else None,
        stdout=_read(out / ".stdout"),
        stderr=_read(out / ".stderr"),
        dmesg=_read(out / ".dmesg"),
        out=out,
        seconds=float(_read(out / ".seconds")),
    )


__all__ = ["MAX_IMAGES", "Guest", "GuestFailed", "NoGuest", "Result"]

"""Real servers for what URLs name: nginx, OpenSSH, and an S3 server over a directory; each a process of its own."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.images import ROOT
from tests.judges import missing_judge, need_tool

SSHD = """
Port {port}
ListenAddress 127.0.0.1
HostKey {at}/host
AuthorizedKeysFile {at}/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
"""
PRIVILEGES = Path("/run/sshd")  # what sshd wants to be there where root runs it; its service makes it
S3 = ROOT / ".cache" / "suites" / "bin" / "s3s-fs"
KEY, SECRET = "f2tools-key", "f2tools-secret"
CONFIG = """
daemon off; master_process off; pid {at}/pid; error_log {at}/errors;
events {{}}
http {{
  access_log {at}/requests; client_body_temp_path {at}/body; proxy_temp_path {at}/proxy;
  fastcgi_temp_path {at}/fastcgi; uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;
  server {{
    listen 127.0.0.1:{port}; root {root};
    location /listed/ {{ alias {root}/; autoindex on; }}
    location /whole/ {{ alias {root}/; max_ranges 0; }}
    location /secret/ {{ return 403; }}
    location /busy/ {{ return 503; }}
  }}
}}
"""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def served(command: list[str], port: int, env: dict[str, str] | None = None) -> Iterator[None]:
    """A server, from when it answers to the end of this."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    try:
        for _ in range(600):
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, f"{command[0]} ended with {process.returncode}"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def web(root: Path, at: Path) -> Iterator[str]:
    """nginx over the files below `root`; the base of their URLs.  `at` is for its own files."""
    nginx = need_tool("nginx")
    port = free_port()
    user = "user root;\n" if os.geteuid() == 0 else ""
    (at / "nginx.conf").write_text(user + CONFIG.format(at=at, port=port, root=root))
    with served([nginx, "-e", str(at / "errors"), "-p", str(at), "-c", str(at / "nginx.conf")], port):
        yield f"http://127.0.0.1:{port}"


def requests(at: Path) -> list[tuple[str, int, int]]:
    """(method, status, bytes of the answer) of every request that nginx has answered."""
    lines = [line.split('"') for line in (at / "requests").read_text().splitlines()]
    return [(parts[1].split()[0], *map(int, parts[2].split()[:2])) for parts in lines]


@contextmanager
def s3(root: Path) -> Iterator[str]:
    """An S3 server whose buckets are the directories below `root`; the address that clients are to use."""
    if not S3.exists():
        missing_judge("s3s-fs is not built (make suites)", "whether images in S3 are read")
    port = free_port()
    place = ["--host", "127.0.0.1", "--port", str(port), "--access-key", KEY, "--secret-key", SECRET]
    with served([str(S3), *place, str(root)], port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def sftp(at: Path) -> Iterator[tuple[str, Path]]:
    """OpenSSH's sshd with its SFTP server: the base of URLs of absolute paths, and the home whose key may log in."""
    sshd, keygen = need_tool("sshd"), need_tool("ssh-keygen")
    port, home = free_port(), at / "home"
    (home / ".ssh").mkdir(parents=True)
    key = home / ".ssh" / "id_ed25519"
    for path in (key, at / "host"):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    (at / "authorized").write_bytes(key.with_suffix(".pub").read_bytes())
    (at / "sshd.conf").write_text(SSHD.format(at=at, port=port))
    if os.geteuid() == 0:
        PRIVILEGES.mkdir(0o755, exist_ok=True)
    with served([sshd, "-f", str(at / "sshd.conf"), "-D", "-e"], port):
        yield f"sftp://{pwd.getpwuid(os.geteuid()).pw_name}:a-password@127.0.0.1:{port}", home

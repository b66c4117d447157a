"""Fixtures that every test may use: reference images, their damaged forms, the guest with the real kernel."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import images
from tests.judges import missing_judge
from tests.kernel.build_guest import NoGuest
from tests.kernel.guest import Guest

# Where this is set, each of the thousands of commands that tests start would compile all its modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.pop("PYTHONUNBUFFERED", None)  # a full disk is met at the end where output is buffered, as users have it

# A test that runs `f2tools` through a shell means the one that belongs to this Python.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # in the guest, whose few tests do without
    pass
else:
    # How long an example takes says something of the machine, nothing of the code.
    settings.register_profile("no time limit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("no time limit")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that boot the guest are marked "kernel", come first and, under pytest-xdist, one after the other."""
    for item in items:
        if "guest" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kernel)
            if not item.get_closest_marker("xdist_group"):
                item.add_marker(pytest.mark.xdist_group("kernel"))
    items.sort(key=lambda item: item.get_closest_marker("kernel") is None)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Twelve thousand tests are no garbage: else a resize, which collects at each step, looks through them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    gc.unfreeze()  # or libraries complain of objects that outlive them


@pytest.fixture(scope="session")
def reference() -> Callable[[str], images.Reference]:
    """`reference("plain")`: the reference image of that name, unpacked, to read; `.copy(directory)` to write to it."""
    return images.reference


@pytest.fixture
def damaged(tmp_path: Path) -> Callable[[str], images.Reference]:
    """`damaged("inode-nlink")`: a private copy of the base image with that damage."""
    return lambda name: images.damaged(name, tmp_path / name)


@pytest.fixture(scope="session")
def _guest_or_reason(tmp_path_factory: pytest.TempPathFactory) -> Guest | str:
    try:
        return Guest.ready(tmp_path_factory.mktemp("guest"))
    except NoGuest as e:
        return str(e)


@pytest.fixture
def guest(_guest_or_reason: Guest | str) -> Guest:
    """The real kernel: `guest.run(script, [image, ...])`.  Not to be had: a failure in CI, a skip elsewhere."""
    if isinstance(_guest_or_reason, str):
        missing_judge(f"the kernel in QEMU ({_guest_or_reason})", "whether the real kernel agrees")
    return _guest_or_reason

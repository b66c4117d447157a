"""The plugin for nbdkit, with a module in the place of what nbdkit offers to it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from f2tools.errors import DeviceError
from f2tools.flash.vsl import create_vsl

PLUGIN = Path(__file__).parents[2] / "scripts" / "nbdkit_plugin.py"


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "nbdkit", ModuleType("nbdkit"))
    spec = importlib.util.spec_from_file_location("nbdkit_plugin", PLUGIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_image_is_found_from_the_directory_that_nbdkit_goes_to(
    plugin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_vsl(tmp_path / "v.vsl", 8 << 20).close()
    monkeypatch.chdir(tmp_path)
    plugin.config("image", "v.vsl")
    plugin.config_complete()
    monkeypatch.chdir("/")
    served = plugin.open(False)
    assert plugin.get_size(served) == 8 << 20
    plugin.close(served)


def test_what_cant_be_served_is_said_when_nbdkit_starts(plugin: Any, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="image=FILE"):
        plugin.config_complete()
    with pytest.raises(RuntimeError, match="imgae"):
        plugin.config("imgae", "v.vsl")
    plugin.config("image", str(tmp_path / "none"))
    with pytest.raises(DeviceError, match="No such file"):
        plugin.config_complete()

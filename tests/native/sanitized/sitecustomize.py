"""Lets the Python that finds this on its path import the core that F2_SANITIZED_CORE names, not the built one."""

import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location


class _Finder:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "f2tools.native._core":
            return None
        return spec_from_file_location(name, os.environ["F2_SANITIZED_CORE"])


sys.meta_path.insert(0, _Finder)

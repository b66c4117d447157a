"""Which f2tools this is; pyproject.toml has the same number."""

__version__ = "0.1.0"

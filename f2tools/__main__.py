"""`python -m f2tools`, the same as the command `f2tools`."""

from f2tools.cli import run

if __name__ == "__main__":
    run()

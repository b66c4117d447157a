"""Check a volume and say what is wrong with it, as data: `check(path)` yields findings, the command prints them."""

"""The checks, by what they look at: the image's own structures, inodes in batches, and the facts of the whole scan.

A check is a generator: its docstring is the invariant, its body yields findings.  It prints nothing, decides nothing
and mends nothing.
"""

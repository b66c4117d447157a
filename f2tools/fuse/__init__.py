"""Serving any `vfs.FileSystem` to Linux through FUSE, by pyfuse3 or directly; it knows no disk format."""

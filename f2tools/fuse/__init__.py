"""Serving any `vfs.FileSystem` to Linux through FUSE and pyfuse3; what lies on the disk is not known here."""

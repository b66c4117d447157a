"""Serving any `vfs.FileSystem` to Linux through FUSE, by pyfuse3 or directly; what lies on the disk isn't known."""

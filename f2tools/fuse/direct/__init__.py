"""The kernel's FUSE protocol on /dev/fuse, spoken in this process: no library, no compiler, every operation."""

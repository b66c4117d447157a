"""Reading F2FS: one module for each part of a volume, named as in fs/f2fs, each standing on those below it.

From the bottom: `geometry` (sizes and places), `super`, `checkpoint`, the tables `nat`, `sit` and `summary`, `inode`
and `node`, what lies in files (`data`, `compress`, `fscrypt`, `xattr`, `acl`, `quota`, `verity`) and in directories
(`dentries`, `dir`), and `volume`, which opens it all.  `recovery` finds what was fsync'ed after the checkpoint.  A
reader assumes a sound volume and raises where it is not; fsck has readers of its own, which assume nothing.
"""

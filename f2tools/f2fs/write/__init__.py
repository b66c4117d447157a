"""Writing F2FS: the parts of `f2tools.f2fs.volume` again, by the same names, as parts that change.

`segment` hands out blocks of six logs; `space` and `quota` count them; `node`, `mapping`, `data`, `dir`, `inode` and
`xattr` hold what has changed; `checkpoint` makes it the volume's state, `recovery` brings back what was fsync'ed after
it, `gc` moves what is valid out of sections.  On these stand the operations, in the kernel's files: `balance` (where an
operation begins), `orphan`, `attr`, `file`, `namei`, and `volume`, which callers open.  `bulk/` fills a fresh volume in
one stream.
"""

"""Writing: the parts of `f2tools.f2fs.volume` again, by the same names, as parts that change."""

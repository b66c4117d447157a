"""F2FS itself: `layout` says what is on the disk, `volume` reads it, `write` changes it."""

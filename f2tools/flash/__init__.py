"""Flash below the file system: raw NAND, and a virtualized storage layer on it.  Knows no file system."""

"""The Direct Flash File System: directories whose inode and entries are one page, on raw NAND."""

"""Trees of files on their way into a volume of any kind: directories, archives, and which of their files are chosen."""

"""Trees of files on their way into a volume of any kind: directories, archives, what of them is chosen."""

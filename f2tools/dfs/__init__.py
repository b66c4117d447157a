"""The Direct File System: files at addresses that follow from their numbers, over a virtualized flash storage layer."""

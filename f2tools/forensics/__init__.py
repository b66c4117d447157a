"""What the log of a volume still holds: an index of every node and directory block, live or not, and what stands on it:
history, timelines, older views, deleted files.  Nothing here writes to an image."""

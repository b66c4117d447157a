"""What stands between a change and the disk: overlays, logs for undoing, recorders."""

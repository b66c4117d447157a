"""Filling a fresh volume in one stream, without a checkpoint before the end."""

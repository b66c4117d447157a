"""Whose block a write was."""

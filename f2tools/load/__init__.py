"""Filling a volume that exists already, as sload.f2fs does: all of it, or nothing."""

"""Structures computed anew from what is left of the others."""

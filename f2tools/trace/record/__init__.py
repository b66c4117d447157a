"""Capturing a trace, with everything beside it that analysis can use."""

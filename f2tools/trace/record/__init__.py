"""Capturing a trace, with everything else that analysis can use."""

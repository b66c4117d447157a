"""Repairs: rounds of checking and changing an overlay, until nothing is left to mend."""

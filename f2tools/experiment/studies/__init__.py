"""One module for each kind of evaluation: its parts, and what the papers claim of it."""

"""What a trace says: each metric with its name, unit, definition, value and rendering, in one place."""

"""What was measured, for people: text, tables, pictures, one HTML page."""

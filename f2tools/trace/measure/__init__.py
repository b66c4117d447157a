"""What is counted while a trace goes by."""

"""What is counted while a trace is read."""

"""What a volume is, its state, what is at risk and what to do next, in plain words.  Nothing is ever written."""

"""What a volume is, how it is, what is at risk and what to do next, in plain words.  Nothing is ever written."""

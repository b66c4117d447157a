"""`f2tools defrag`: files in one piece and in order, offline."""

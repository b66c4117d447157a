"""The evaluations of the papers, by command: what they claim, held against what is seen here."""

"""The evaluations of the papers, by command: their claims compared with results here."""

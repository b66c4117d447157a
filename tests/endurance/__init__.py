"""Runs without an end: campaigns cut into pieces, pieces dealt to shards, and the ledger of what was really run.

`make endurance LIST=1` lists the campaigns, `make endurance SHARD=3/20` runs a shard; docs/endurance.md says what came
of it.
"""

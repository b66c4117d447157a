"""The verbs of the other tools over many images and traces: one row each, by several processes or a cluster."""

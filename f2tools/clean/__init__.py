"""`f2tools clean`: cleaning of sections, offline and shown."""

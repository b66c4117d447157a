"""`f2tools info`: what an image holds, by the tool that knows it."""

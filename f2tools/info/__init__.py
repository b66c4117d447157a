"""`f2tools info`: what an image holds, told by the tool that knows it."""

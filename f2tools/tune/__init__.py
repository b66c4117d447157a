"""`f2tools label` and `f2tools tune`: what a superblock says of a volume, shown and changed."""

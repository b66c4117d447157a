"""`f2tools label` and `f2tools tune`: what a superblock says about a volume, shown and changed."""

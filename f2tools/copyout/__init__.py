"""What every tool shares that copies files out of a volume: walking a tree that may be damaged, and making files in a
target directory and nowhere else."""

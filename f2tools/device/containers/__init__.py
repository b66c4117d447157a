"""What wraps a disk: partitions, sparse and compressed images, images in pieces, evidence files."""

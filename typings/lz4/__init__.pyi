"""What f2tools uses of lz4, which brings no types."""

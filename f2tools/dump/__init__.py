"""`f2tools dump`: look at every structure; list, extract and verify files."""

"""What the image says, gathered once and not yet believed: the facts on which the checks judge."""

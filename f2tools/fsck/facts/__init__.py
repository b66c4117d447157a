"""What the image says, gathered once and believed in nothing: the ground on which the checks judge."""

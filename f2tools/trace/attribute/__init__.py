"""To which area, log and file each write belongs."""

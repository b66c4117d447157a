"""Take back what a command did to an image, from the log that it kept with `--undo`."""

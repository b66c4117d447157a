"""A prompt inside an image, as debugfs has one: the commands of f2tools without the image's name in every line."""

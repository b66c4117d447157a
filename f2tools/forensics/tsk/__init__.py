"""The views of The Sleuth Kit: its file names, addresses and layouts, for people and scripts that read them."""

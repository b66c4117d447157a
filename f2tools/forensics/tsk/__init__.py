"""The views of The Sleuth Kit: its file names, addresses and layouts, for those who read them and their scripts."""

"""Where blocks lie: files, block devices, several of them as one volume, zones."""

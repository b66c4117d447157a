"""`f2tools mount`: an F2FS volume as a file system of this machine, through FUSE."""

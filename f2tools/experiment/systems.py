"""The file systems that experiments compare."""

FILE_SYSTEMS = ("f2fs", "ext4", "btrfs", "nilfs2")

"""The `resize` tool: let a volume grow or shrink while nobody has it mounted."""

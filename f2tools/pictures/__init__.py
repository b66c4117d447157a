"""Pictures of figures, as plain data, and how they become SVG and PNG."""

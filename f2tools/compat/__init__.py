"""f2tools under the names of f2fs-tools: their options, what scripts read of their output, their exit codes."""

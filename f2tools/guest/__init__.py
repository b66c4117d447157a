"""A real kernel in QEMU, as anybody may run it: no root, no KVM, nothing installed."""

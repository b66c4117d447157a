"""A real kernel in QEMU that any user can run: no root, no KVM, nothing installed."""

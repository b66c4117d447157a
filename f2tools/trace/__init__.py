"""Block traces: what a workload really did to the device, by operation, F2FS area, log and file."""

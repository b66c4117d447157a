"""Block traces as columns of events: blktrace, blkparse, ftrace and perf; and which events belong together."""

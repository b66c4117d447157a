"""What each metric means, exactly: for `--explain`, and for whoever reads a report and asks."""

from __future__ import annotations

DEFINITIONS = {
    "reads": "Requests and bytes as the device's own counters have them: each request that was issued, once.",
    "writes": (
        "As reads, of writes. The device counts a flush that a file system sends without data (`empty_flushes`) "
        "among its writes, so `requests` has them too; `requests_with_data` has not."
    ),
    "discards": "As reads, of discards. blkparse and btt count these among writes.",
    "flushes": "Cache flushes that the device was sent.",
    "lost_events": "Events that are missing by the sequence numbers, which count from 1 on each CPU.",
    "size_512k": (
        "Share of W with exactly 524288 bytes; beside it: with at least as many, and of the size of the largest "
        "write of the trace. By requests and by bytes. W: issued (D) file-system writes with data that are no "
        "discards; a requeued request counts once, at its last issue."
    ),
    "sequentialised": (
        "Bytes of application data (main area, data logs) in requests of 512 KiB or more that begin at the tail "
        "of their own log, divided by all application data bytes. Needs images; without them `null`."
    ),
    "discard_coverage": (
        "|U(Dsc) and U(W)| / |U(W)|, U being the union of sectors; beside it, sum of discarded bytes / sum of "
        "written bytes. W: issued (D) file-system writes with data that are no discards; a requeued request "
        "counts once, at its last issue."
    ),
    "sequentiality": (
        "By operation, under each definition in use: `strict` starts at the end of the previous request of its "
        "kind; `any` at the end of the previous I/O of any kind; `last_K` at the end of one of the last K of its "
        "kind; `near_32_128k` within 128 KiB of the end of one of the last 32; `large_512k` has 512 KiB or more; "
        "`per_log` (with images) starts at the tail of its own log. In order of issue."
    ),
    "small_discards": (
        "Share of discards with less than 262144 bytes, as issued (D) and as queued (Q): a device that splits "
        "discards makes the two differ."
    ),
    "write_reduction": "1 - bytes of W in this trace / bytes of W in the baseline; beside it by requests.",
    "fs_waf": "Bytes of W / bytes that the application wrote, as given by --app-bytes, --fio, or the recording.",
    "threaded_share": (
        "Main-area blocks written into a segment that held valid blocks when it was opened / all main-area blocks "
        "written. `at_least` is sure; images can't tell a block that was written in place from one that was given out "
        "anew, so `at_most` has all that was written again; `byte_share` is by how a log goes upwards from free block "
        "to free block. Needs the image from before, and to be more than `at_least` the one from after."
    ),
    "valid_block_histogram": (
        "Dirty segments of an image by their number of valid blocks: each by itself, and in eighths of a segment."
    ),
    "areas": (
        "Bytes written to sb, cp, sit, nat, ssa and main, exactly, from the superblock's bounds. sb is all ahead of cp."
    ),
    "logs": (
        "Bytes written to the main area by log: the type of the segment that a block lay in when it was written. "
        "What two images can't tell is in `ambiguous`, never guessed."
    ),
    "files": "Bytes written by inode and path, data and nodes; what can't be told is in `files_ambiguous`.",
    "ambiguous": "Bytes written to the main area whose log two images and the trace can't tell.",
    "fsync_cost": "Bytes written to the main area between one flush or FUA write and the next.",
    "latency": (
        "In ns. d2c: issue to completion, of requests; q2c: queue to completion, q2d: queue to issue, of bios (a "
        "bio that was split counts once for each part). Requests that span lost events are left out. Quantiles "
        "are exact to 0.1 % (0.8 % by size and area: `d2c_by_size` and so on); count, mean, min and max are exact."
    ),
    "discard_read_overlap": "Time in which at least one discard and at least one read are at the device at once.",
    "device_waf": "Bytes written to the flash / bytes that the host wrote, by its own counters before and after.",
    "queue_depth": "Requests at the device: at each issue (itself included), and averaged over time.",
    "merges": "Bios that joined a request that was waiting (M and F), and bios that were split (X).",
    "seeks": (
        "btt's distance between successive I/Os of any kind: 0 where this one begins or ends within the previous "
        "one, else from the previous end when ahead, from the previous start when behind."
    ),
    "sizes": "Requests by their bytes as issued (and bios as queued).",
    "processes": "Requests and bytes by the process that queued them; write-back belongs to kernel threads.",
    "cgroups": "The same by cgroup id, where the trace has them.",
    "windows": "Sums over time; bins widen with the trace.",
}

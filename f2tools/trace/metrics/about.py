"""Metrics of the trace itself: what was read, how long it is, what is missing, how it could be paired."""

from __future__ import annotations

from typing import Any

import numpy as np

from f2tools.blktrace.damage import KINDS
from f2tools.blktrace.numbers import device_name
from f2tools.blktrace.records import CLASS_NAMES, NOTIFY_MESSAGE, OP_NAMES
from f2tools.device.media.remote import without_credentials
from f2tools.trace.metrics.metric import BYTES, COUNT, NS, OTHER, TEXT, TREE, Measured, Metric, Word, number

MAX_MESSAGES = 1000

LETTERS = {
    "Q": Word("Queued: a bio came in.", COUNT),
    "M": Word("Merged at the back: a bio joined the end of a request that waits.", COUNT),
    "F": Word("Merged at the front: a bio joined the start of a request that waits.", COUNT),
    "G": Word("A request was got for a bio.", COUNT),
    "S": Word("A bio waits for a request.", COUNT),
    "R": Word("Requeued: the driver gave a request back.", COUNT),
    "D": Word("Issued: a request went to the driver.", COUNT),
    "C": Word("Completed: the device answered.", COUNT),
    "P": Word("A process plugged its queue, to gather requests.", COUNT),
    "U": Word("A process unplugged its queue.", COUNT),
    "UT": Word("A queue was unplugged by a timer.", COUNT),
    "I": Word("A request was inserted in the scheduler's queue.", COUNT),
    "X": Word("A bio was split.", COUNT),
    "B": Word("A bio was bounced to memory that the device reaches.", COUNT),
    "A": Word("Remapped, as from a partition to its disk.", COUNT),
    "abort": Word("A request was aborted.", COUNT),
    "m": Word("A message of a program.", COUNT),
    "ZP": Word("A zoned device's write was plugged.", COUNT),
    "ZU": Word("A zoned device's write was unplugged.", COUNT),
    OTHER: Word("An operation that has no name here, by its number.", COUNT),
}
DAMAGE = {kind: Word(f"{text[0].upper()}{text[1:]}.", COUNT) for kind, text in KINDS.items()}


def _letter(op: int) -> str:
    return OP_NAMES[op] if op < len(OP_NAMES) and OP_NAMES[op] else f"op{op}"


def _events_by_operation(it: Measured) -> dict[str, int]:
    counts = it.trace.operations
    return {_letter(op): int(counts[op]) for op in np.flatnonzero(counts).tolist()}


def _operations(it: Measured) -> dict[str, dict[str, int]]:
    counts = it.measures.operations
    return {
        _letter(op): {CLASS_NAMES[c]: int(counts[op, c]) for c in range(len(CLASS_NAMES)) if counts[op, c]}
        for op in np.flatnonzero(counts.sum(axis=1)).tolist()
    }


def _duration(it: Measured) -> int:
    return it.measures.last - it.measures.first if it.measures.first is not None else 0


def _devices(it: Measured) -> dict[str, int]:
    return {device_name(device): at for device, at in it.measures.devices.items()}


def _damage(it: Measured) -> dict[str, Any]:
    damage = it.trace.damage
    return {
        **damage.counts,
        "skipped_bytes": damage.skipped_bytes,
        "lost_by_cpu": {str(cpu): count for cpu, count in sorted(damage.lost_by_cpu.items())},
        "problems": [vars(problem) for problem in damage.problems],
    }


def _messages(it: Measured) -> list[dict[str, Any]]:
    return [
        {"time_ns": note.time, "text": note.payload.decode("utf-8", "replace").strip()}
        for note in it.trace.messages[:MAX_MESSAGES]
        if note.op == NOTIFY_MESSAGE
    ]


TRACE = Metric("trace", TEXT, "The name of the trace, as it was given.", lambda it: it.trace.name)
TRACE_FILES = Metric(
    "trace_files", TEXT, "The files that the trace was read from.",
    lambda it: [without_credentials(name) for name in it.trace.files],
)  # fmt: skip
EVENTS = Metric("events", COUNT, "Events that were read.", lambda it: int(it.trace.operations.sum()))
EVENTS_BY_OPERATION = Metric(
    "events_by_operation", COUNT, "Events that were read, by blkparse's letters.", _events_by_operation, LETTERS
)
OPERATION_COUNTS = Metric(
    "operations", COUNT, "Events that metrics are made of, by blkparse's letters, and by what they do.", _operations,
    LETTERS,
)  # fmt: skip
RECORDS = Metric(
    "records", COUNT, "Records of the trace: events, and notes such as names.", lambda it: it.trace.records
)
SELECTION = Metric(
    "selection", TEXT,
    "Whether the trace is a text from which events were left out on purpose; what is lost can't be told then.",
    lambda it: it.trace.selection, rendering=number,
)  # fmt: skip
DURATION = Metric(
    "duration_ns", NS, "From the first event that counts to the last.", _duration, labels={"duration": ""}
)
FIRST = Metric("first_ns", NS, "When the first event was, by the trace's clock.", lambda it: it.measures.first)
DEVICES = Metric(
    "devices", TEXT, "The traced devices by major and minor number, numbered as they come.", _devices,
    {OTHER: Word("A device's major and minor number.", COUNT)}, {"device": ""},
)  # fmt: skip
ERRORS = Metric(
    "errors", COUNT, "Completions with an error, by the error's number.",
    lambda it: {str(code): count for code, count in sorted(it.measures.errors.items())},
    {OTHER: Word("The error's number.")},
)  # fmt: skip
LOST_EVENTS = Metric(
    "lost_events", COUNT, "Events that are missing by the sequence numbers, which count from 1 on each CPU.",
    lambda it: it.trace.damage.counts["lost"],
)  # fmt: skip
DAMAGED = Metric(
    "damage", TREE, "What is wrong with the trace, counted by kind, and the first places where it is.", _damage,
    {
        **DAMAGE,
        "skipped_bytes": Word("Bytes that are no record, left out.", BYTES, number),
        "lost_by_cpu": Word("Lost events by the CPU that they happened on.", COUNT),
        "problems": Word("The first places where something is wrong.", TEXT),
        "kind": Word("Which of the kinds of damage.", TEXT),
        "stream": Word("The file, or the stream of a CPU.", TEXT),
        "offset": Word("The byte in it, of a text the line.", COUNT),
        "text": Word("What is wrong.", TEXT),
    },
    {"DAMAGED": ""},
)  # fmt: skip
PAIRING = Metric(
    "pairing", COUNT, "How events were joined to requests, and what could not be joined.",
    lambda it: vars(it.pairer.counts).copy(),
    {
        "completions_without_issue": Word(
            "Completions of what was issued before the trace, or whose issue is lost, or later by another CPU's clock."
        ),
        "never_completed": Word(
            "Requests that were issued and did not end in the trace, or before that by another CPU's clock."
        ),
        "never_issued": Word("Bios that were queued and not issued in the trace."),
        "requeued": Word("Requests that the driver gave back."),
        "split": Word("Bios that were split."),
        "issued_without_queue": Word("Requests that were issued and of which no bio was seen to be queued."),
        "spanning_gap": Word(
            "Requests that are in no latency, as events were lost while they were under way and the completion may be "
            "that of another one. Long ones are among them more often, so what is left is too short on average."
        ),
        "exact": Word("Events that were paired one by one, since their requests overlap."),
    },
    {"unpaired": "", "across losses": "spanning_gap"},
)  # fmt: skip
MESSAGES = Metric(
    "messages", TEXT, f"What programs wrote into the trace, the first {MAX_MESSAGES:,} messages.", _messages,
    {"time_ns": Word("When, by the trace's clock.", NS), "text": Word("The message.")},
)  # fmt: skip

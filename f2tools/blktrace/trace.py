"""A trace: its files, its events in order of time, and what is known of it besides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from f2tools.blktrace.apart import apart
from f2tools.blktrace.records import Events
from f2tools.blktrace.scan import WINDOW
from f2tools.blktrace.streams import Gathered, Stream, merged

MIN_WINDOW = 1 << 18
BUFFERS = 16 << 20  # bytes in all streams' windows together


class Trace(Gathered):
    """A trace as its streams; `damage`, `notes` and `names` fill while it is read."""

    def events(
        self, wanted: Sequence[int] | None = None, payloads: bool = False, lean: bool = False, jobs: int = 1,
        cuts: Sequence[int] = (),
    ) -> Iterator[Events]:  # fmt: skip
        """All events in order of time, in windows; `wanted` limits them to some operations.

        `payloads` keeps those of all operations, `lean` leaves out CPUs, sequence numbers and, where there are none,
        cgroups.  With more than one of `jobs`, that many streams less one are decoded in processes of their own.
        `cuts` are times between which windows had better lie.
        """
        mask = None
        if wanted is not None:
            mask = np.zeros(256, np.bool_)
            mask[list(wanted)] = True
        found = [(path, apart(path, MIN_WINDOW if len(self.files) > 1 else WINDOW)) for path in self.files]
        self.late = len(found) == 1 and found[0][1] is None
        paths = [part for path, parts in found for part in parts or (path,)]
        window = max(MIN_WINDOW, min(WINDOW, BUFFERS // max(len(paths), 1)))
        streams: list[Stream] = []
        try:
            for path in paths:
                if len(streams) < jobs - 1:
                    from f2tools.blktrace.ahead import StreamAhead

                    streams.append(StreamAhead(self, path, window, mask, payloads, lean))
                else:
                    streams.append(Stream(self, path, window, mask, payloads, lean))
            yield from streams[0].whole() if len(streams) == 1 else merged(streams, cuts)
        finally:
            for stream in streams:
                stream.close()
        for stream in streams:
            stream.gather()

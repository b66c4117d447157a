"""A plugin for nbdkit: any image that f2tools opens, a layer too, as a network block device.

    nbdkit -U - python scripts/nbdkit_plugin.py image=card.vsl --run 'nbdcopy disk.img "$uri"'

nbdkit runs its own Python: PYTHONPATH must lead it to f2tools and what that needs.
"""

from __future__ import annotations

import os

import nbdkit

from f2tools.device import open_device
from f2tools.device.media.remote import is_url

image = None


def config(key, value):
    global image
    if key != "image":
        raise RuntimeError(f"{key}: not known; image=FILE is")
    image = value if is_url(value) else os.path.abspath(value)  # in the background nbdkit is in another directory


def config_complete():
    if image is None:
        raise RuntimeError("image=FILE is needed")
    open_device(image, whole=True).close()  # what can't be opened is said now


def thread_model():
    return nbdkit.THREAD_MODEL_SERIALIZE_ALL_REQUESTS


def open(readonly):
    return open_device(image, write=not readonly, whole=True)


def get_size(layer):
    return layer.size_bytes


def block_size(layer):
    return (512, 4096, 0xFFFFFFFF)


def pread(layer, buffer, offset, flags):
    layer.pread_into(offset, buffer)


def pwrite(layer, buffer, offset, flags):
    layer.pwrite(offset, buffer)
    if flags & nbdkit.FLAG_FUA:
        layer.flush()


def can_fua(layer):
    return nbdkit.FUA_NATIVE


def flush(layer, flags):
    layer.flush()


def trim(layer, count, offset, flags):
    layer.discard(offset, count)


def zero(layer, count, offset, flags):
    layer.write_zeroes(offset, count)


def close(layer):
    layer.close()


API_VERSION = 2

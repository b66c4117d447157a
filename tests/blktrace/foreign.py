"""A few lines of each form of trace that other tools write, and what they say."""

from __future__ import annotations

from f2tools.blktrace.foreign.requests import DISCARD, READ, WRITE

# form: text, and what it says: time in ns, offset, size, kind
SAMPLES = {
    "MSR Cambridge": (
        "128166372003061629,hm,1,Read,383496192,32768,413\n128166372016382155,hm,1,Write,310983680,4096,2\n",
        [(1172163600306162900, 383496192, 32768, READ), (1172163601638215500, 310983680, 4096, WRITE)],
    ),
    "SPC": (
        "0,303567,3584,w,0.000000\n0,55590,3072,R,1.026214\n",
        [(0, 303567 * 512, 3584, WRITE), (1_026_214_000, 55590 * 512, 3072, READ)],
    ),
    "Alibaba": (
        "device_id,opcode,offset,length,timestamp\n419,W,8792731648,16384,1577808144360767\n419,R,4096,512,1577808144360768\n",
        [(1577808144360767000, 8792731648, 16384, WRITE), (1577808144360768000, 4096, 512, READ)],
    ),
    "Tencent": (
        "1538323200,12910952,128,0,1063\n1538323201,6338688,8,1,1063\n",
        [(1538323200 * 10**9, 12910952 * 512, 65536, READ), (1538323201 * 10**9, 6338688 * 512, 4096, WRITE)],
    ),
    "FIU": (
        "89967195122987 4892 syslogd 904265560 8 W 6 0 531e779d39068430\n89967195122999 4892 syslogd 8 8 R 6 0 aa\n",
        [(89967195122987, 904265560 * 512, 4096, WRITE), (89967195122999, 4096, 4096, READ)],
    ),
    "fio iolog v2": (
        "fio version 2 iolog\n/dev/sda add\n/dev/sda open\n/dev/sda write 4096 8192\n/dev/sda wait 10 0\n"
        "/dev/sda trim 0 4096\n/dev/sda sync 0 0\n/dev/sda close\n",
        [(0, 4096, 8192, WRITE), (0, 0, 4096, DISCARD)],
    ),
    "fio iolog v3": (
        "fio version 3 iolog\n0 f add\n0 f open\n675 f read 0 4096\n676 f write 4096 512\n700 f close\n",
        [(675_000, 0, 4096, READ), (676_000, 4096, 512, WRITE)],
    ),
    "MQSim": (
        "938513000 4 264719034 16 0\n938828000 4 197570570 8 1\n",
        [(938513000, 264719034 * 512, 8192, WRITE), (938828000, 197570570 * 512, 4096, READ)],
    ),
}  # fmt: skip

#!/usr/bin/env python3
"""`f2tools ftl`: requests a CPU second by model, and its counters beside those of FlashSim and MQSim.

    bench/ftl.py [--blocks 1024] [--engine auto] [--flashsim PATH/ufliptrace] [--mqsim PATH/MQSim]

FlashSim is its program `ufliptrace`, MQSim its only one; how they are come by is the caller's business.  Peers play the
same writes: FlashSim a trace twice, of which it counts the second time; MQSim one that fills a device and writes on at
random.  What differs by definition stands in docs/ftl.md.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from f2tools.ftl.engine import engine
from f2tools.ftl.models import Setting, Simulated
from f2tools.ftl.state import WRITE, Shape
from f2tools.ftl.workload import NO_STREAMS, Load, Piece

PER_BLOCK = 64
MQSIM_KEEPS = 10  # blocks of a plane at least, whatever its settings say
MQSIM_OPEN = 3  # for data, for what is moved, for its map
GAP_NS = 100_000_000  # between writes for MQSim, so that cleaning has ended when the next one comes
SPEED = {
    "page": Setting("page"), "streams": Setting("streams", streams=1), "dftl": Setting("dftl"),
    "fast": Setting("fast"), "set": Setting("set"), "bast": Setting("bast"), "block": Setting("block"),
}  # fmt: skip


def writes(pages: NDArray[np.int32]) -> Piece:
    """Writes of these pages."""
    return Piece(np.full(len(pages), WRITE, np.int8), pages.astype(np.int32), NO_STREAMS)


def speed(setting: Setting, engine_name: str, runs: int) -> float:
    """Uniform writes on a full device, a CPU second."""
    shape = setting.shape()
    device = Simulated(engine(engine_name), setting, shape)
    device.feed(writes(np.arange(shape.logical_pages)))
    load = Load().pieces(shape.logical_pages, device.engine)
    device.feed(next(load).part(slice(4096)))
    found = []
    for _ in range(runs):
        piece = next(load).part(slice(16384 if engine_name == "python" else None))
        start = time.process_time()
        device.feed(piece)
        found.append(len(piece) / (time.process_time() - start))
    return statistics.median(found)


def cpu_of(command: list[str], directory: Path) -> tuple[str, float]:
    """(what a program prints, its CPU seconds)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, errors="replace"
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def flashsim_config(kind: int, logs: int, cache: int) -> str:
    """A device of 1,024 blocks of 64 pages."""
    values = {
        "RAM_READ_DELAY": 0.01, "RAM_WRITE_DELAY": 0.01, "BUS_CTRL_DELAY": 2, "BUS_DATA_DELAY": 10,
        "BUS_MAX_CONNECT": 8, "BUS_TABLE_SIZE": 512, "SSD_SIZE": 1, "PACKAGE_SIZE": 2, "DIE_SIZE": 2,
        "PLANE_SIZE": 256, "PLANE_REG_READ_DELAY": 0.01, "PLANE_REG_WRITE_DELAY": 0.01, "BLOCK_SIZE": PER_BLOCK,
        "BLOCK_ERASES": 1000000, "BLOCK_ERASE_DELAY": 2000, "PAGE_READ_DELAY": 25, "PAGE_WRITE_DELAY": 300,
        "PAGE_ENABLE_DATA": 0, "MAP_DIRECTORY_SIZE": 100, "FTL_IMPLEMENTATION": kind, "BAST_LOG_BLOCK_LIMIT": logs,
        "FAST_LOG_BLOCK_LIMIT": logs, "CACHE_DFTL_LIMIT": cache, "PARALLELISM_MODE": 2, "VIRTUAL_BLOCK_SIZE": 1,
        "VIRTUAL_PAGE_SIZE": 1, "RAID_NUMBER_OF_PHYSICAL_SSDS": 2,
    }  # fmt: skip
    return "".join(f"{name} {value}\n" for name, value in values.items())


def flashsim(
    path: str, pages: NDArray[np.int32], kind: int, logs: int = 300, cache: int = 1
) -> tuple[dict, str, float]:
    """(counters of the second time, what it printed, writes a CPU second of both)."""
    with tempfile.TemporaryDirectory(prefix="f2ftl-") as name:
        directory = Path(name)
        (directory / "ssd.conf").write_text(flashsim_config(kind, logs, cache))
        (directory / "t").mkdir()
        rows = "".join(f"R; W; {page}; 0; 1; {at + 1}\n" for at, page in enumerate(pages.tolist()))
        (directory / "t" / "trace").write_text(rows)
        printed, seconds = cpu_of([os.path.abspath(path), "t/"], directory)
        head, values = (directory / "output.log").read_text().splitlines()[:2]
        found = dict(zip(head.split(";"), values.split(";"), strict=False))
    return found, printed, 2 * len(pages) / seconds


def rate_of(setting: Setting, shape: Shape, pages: NDArray[np.int32]) -> float:
    """Our writes a CPU second of the same trace, again and again."""
    device = Simulated(engine("auto"), setting, shape)
    device.feed(writes(pages))
    start, count = time.process_time(), 0
    while time.process_time() - start < 0.5:
        device.feed(writes(pages))
        count += len(pages)
    return count / (time.process_time() - start)


def print_rate(what: str, theirs: float, ours: float) -> None:
    """Side by side."""
    print(f"{what:16} {'writes a CPU second':34} {ours:>10,.0f} {theirs:>10,.0f}   {ours / theirs:.0f} times")


def beside_flashsim(path: str) -> None:
    """BAST: all counters.  DFTL: hits and misses of the map, without cleaning."""
    rng = np.random.default_rng(1)
    print("\nFlashSim, counters of the second time                   ours   FlashSim")
    for what, pages in {
        "random": rng.integers(0, 256 * PER_BLOCK, 20000),
        "runs": np.concatenate([np.arange(s, s + s % 200 + 1) for s in rng.integers(0, 16000, 200).tolist()]),
        "sequential": np.arange(20000) % (256 * PER_BLOCK),
    }.items():  # fmt: skip
        theirs, _, rate = flashsim(path, pages, 1)
        device = Simulated(engine("auto"), Setting("bast", log_blocks=300), Shape(65536, PER_BLOCK, 1024 + 300))
        device.feed(writes(pages))
        before = device.counters()
        device.feed(writes(pages))
        ours = {name: value - before[name] for name, value in device.counters().items()}
        merges = ours["switch"] + ours["full"]
        for name, value, other in (
            ("pages copied", ours["moved"], "numWLWrite"),
            ("writes (its maps added)", ours["flash_writes"] + merges, "numFTLWrite"),
            ("erases", ours["erases"], "numFTLErase"), ("switch merges", ours["switch"], "numLogMergeSwitch"),
            ("full merges", ours["full"], "numLogMergeFull"),
        ):  # fmt: skip
            print(f"BAST, {what:10} {name:34} {value:>8} {theirs[other]:>10}")
        shape = Shape(65536, PER_BLOCK, 1024 + 300)
        print_rate(f"BAST, {what}", rate, rate_of(Setting("bast", log_blocks=300), shape, pages))
    for what, pages in {
        "random": rng.integers(0, 20000, 20000), "zipf": np.minimum(rng.zipf(1.3, 20000), 20000) - 1,
    }.items():  # fmt: skip
        theirs, printed, rate = flashsim(path, pages, 3)
        match = re.search(r"Number of elements in Cached Mapping Table \(CMT\): (\d+)", printed)
        assert match is not None, printed[-400:]
        setting = Setting("dftl", map_cache=int(match[1]))
        device = Simulated(engine("auto"), setting, Shape(32768, PER_BLOCK, 1024))
        device.feed(writes(pages))
        before = device.counters()
        device.feed(writes(pages))
        ours = {name: value - before[name] for name, value in device.counters().items()}
        for name, value, other in (
            ("hits", ours["map_hits"], "numCacheHits"),
            ("misses", ours["map_misses"], "numCacheFaults"),
        ):
            print(f"DFTL, {what:10} {name:34} {value:>8} {theirs[other]:>10}")
        print_rate(f"DFTL, {what}", rate, rate_of(setting, Shape(32768, PER_BLOCK, 1024), pages))
    pages = rng.integers(0, 700 * PER_BLOCK, 20000)
    _, printed, rate = flashsim(path, pages, 1, logs=64)
    shape = Shape(700 * PER_BLOCK, PER_BLOCK, 764)
    print_rate("BAST, 64 logs", rate, rate_of(Setting("bast"), shape, pages))
    _, printed, rate = flashsim(path, pages, 2, logs=64)
    print_rate("FAST, 64 logs", rate, rate_of(Setting("fast"), shape, pages))
    print_rate("set, 64 logs", rate, rate_of(Setting("set"), shape, pages))


def mqsim_config(blocks: int, op: float, threshold: float) -> str:
    """One plane of one die, pages of 4 KiB, the whole map in memory, greedy cleaning, no wear levelling."""
    host = {
        "PCIe_Lane_Bandwidth": 1.0, "PCIe_Lane_Count": 4, "SATA_Processing_Delay": 400000,
        "Enable_ResponseTime_Logging": "false", "ResponseTime_Logging_Period_Length": 1000000,
    }  # fmt: skip
    device = {
        "Seed": 321, "Enabled_Preconditioning": "false", "Memory_Type": "FLASH", "HostInterface_Type": "NVME",
        "IO_Queue_Depth": 65535, "Queue_Fetch_Size": 512, "Caching_Mechanism": "SIMPLE",
        "Data_Cache_Sharing_Mode": "SHARED", "Data_Cache_Capacity": 1048576, "Data_Cache_DRAM_Row_Size": 8192,
        "Data_Cache_DRAM_Data_Rate": 100, "Data_Cache_DRAM_Data_Busrt_Size": 1, "Data_Cache_DRAM_tRCD": 13,
        "Data_Cache_DRAM_tCL": 13, "Data_Cache_DRAM_tRP": 13, "Address_Mapping": "PAGE_LEVEL",
        "Ideal_Mapping_Table": "true", "CMT_Capacity": 2097152, "CMT_Sharing_Mode": "SHARED",
        "Plane_Allocation_Scheme": "CWDP", "Transaction_Scheduling_Policy": "OUT_OF_ORDER",
        "Overprovisioning_Ratio": op, "GC_Exec_Threshold": threshold, "GC_Block_Selection_Policy": "GREEDY",
        "Use_Copyback_for_GC": "false", "Preemptible_GC_Enabled": "false", "GC_Hard_Threshold": threshold / 2,
        "Dynamic_Wearleveling_Enabled": "false", "Static_Wearleveling_Enabled": "false",
        "Static_Wearleveling_Threshold": 100, "Preferred_suspend_erase_time_for_read": 700000,
        "Preferred_suspend_erase_time_for_write": 700000, "Preferred_suspend_write_time_for_read": 100000,
        "Flash_Channel_Count": 1, "Flash_Channel_Width": 1, "Channel_Transfer_Rate": 333, "Chip_No_Per_Channel": 1,
        "Flash_Comm_Protocol": "NVDDR2",
    }  # fmt: skip
    chip = {
        "Flash_Technology": "SLC", "CMD_Suspension_Support": "NONE", "Page_Read_Latency_LSB": 3000,
        "Page_Read_Latency_CSB": 3000, "Page_Read_Latency_MSB": 3000, "Page_Program_Latency_LSB": 30000,
        "Page_Program_Latency_CSB": 30000, "Page_Program_Latency_MSB": 30000, "Block_Erase_Latency": 100000,
        "Block_PE_Cycles_Limit": 1000000, "Suspend_Erase_Time": 700000, "Suspend_Program_Time": 100000,
        "Die_No_Per_Chip": 1, "Plane_No_Per_Die": 1, "Block_No_Per_Plane": blocks, "Page_No_Per_Block": PER_BLOCK,
        "Page_Capacity": 4096, "Page_Metadat_Capacity": 448,
    }  # fmt: skip

    def tags(values: dict) -> str:
        return "".join(f"<{name}>{value}</{name}>\n" for name, value in values.items())

    return (
        '<?xml version="1.0" encoding="us-ascii"?>\n<Execution_Parameter_Set>\n'
        f"<Host_Parameter_Set>\n{tags(host)}</Host_Parameter_Set>\n<Device_Parameter_Set>\n{tags(device)}"
        f"<Flash_Parameter_Set>\n{tags(chip)}</Flash_Parameter_Set>\n</Device_Parameter_Set>\n"
        "</Execution_Parameter_Set>\n"
    )


MQSIM_LOAD = """<?xml version="1.0" encoding="us-ascii"?>
<MQSim_IO_Scenarios>
<IO_Scenario>
<IO_Flow_Parameter_Set_Trace_Based>
<Priority_Class>HIGH</Priority_Class>
<Device_Level_Data_Caching_Mode>TURNED_OFF</Device_Level_Data_Caching_Mode>
<Channel_IDs>0</Channel_IDs>
<Chip_IDs>0</Chip_IDs>
<Die_IDs>0</Die_IDs>
<Plane_IDs>0</Plane_IDs>
<Initial_Occupancy_Percentage>0</Initial_Occupancy_Percentage>
<File_Path>trace</File_Path>
<Percentage_To_Be_Executed>100</Percentage_To_Be_Executed>
<Relay_Count>1</Relay_Count>
<Time_Unit>NANOSECOND</Time_Unit>
</IO_Flow_Parameter_Set_Trace_Based>
</IO_Scenario>
</MQSim_IO_Scenarios>
"""


def beside_mqsim(path: str) -> None:
    """The WAF of a device that is filled and then written at random."""
    blocks = 512
    print("\nMQSim, pages programmed for each of the host, a fresh device filled and 4 times overwritten; ours of the")
    print("blocks that it neither keeps free nor has open, of those that it does not keep free, and of all")
    for op, threshold in ((0.10, 0.02), (0.15, 0.02), (0.25, 0.02), (0.15, 0.05), (0.25, 0.05), (0.25, 0.1)):
        pages = int(blocks * PER_BLOCK * (1 - op)) - PER_BLOCK
        rng = np.random.default_rng(5)
        order = np.concatenate([np.arange(pages), rng.integers(0, pages, 4 * pages)])
        with tempfile.TemporaryDirectory(prefix="f2ftl-") as name:
            directory = Path(name)
            (directory / "trace").write_text(
                "".join(f"{at * GAP_NS} 0 {p * 8} 8 0\n" for at, p in enumerate(order.tolist()))
            )
            (directory / "ssd.xml").write_text(mqsim_config(blocks, op, threshold))
            (directory / "load.xml").write_text(MQSIM_LOAD)
            printed, seconds = cpu_of([os.path.abspath(path), "-i", "ssd.xml", "-w", "load.xml"], directory)
            results = list(directory.glob("*_scenario_1.xml"))
            text = results[0].read_text() if results else printed
        done = re.search(r"<Request_Count>(\d+)</Request_Count>", text)
        assert done is not None, printed[-400:]
        assert int(done[1]) == len(order), f"MQSim did {done[1]} of {len(order)} requests"
        programmed = sum(int(n) for n in re.findall(r'Issued_Flash_(?:Multiplane_)?Program_CMD="(\d+)"', text))
        kept = max(int(blocks * threshold), MQSIM_KEEPS)
        row = [f"ratio {op:.2f}, kept free {threshold:.2f}", f"{programmed / len(order):8.4f}"]
        for of in (blocks - kept - MQSIM_OPEN, blocks - kept, blocks):
            device = Simulated(engine("auto"), Setting("page"), Shape(pages, PER_BLOCK, of))
            device.feed(writes(order))
            row.append(f"{device.counters()['flash_writes'] / len(order):8.4f}")
        print(f"{row[0]:28} MQSim {row[1]}  ours {', '.join(row[2:])}  {len(order) / seconds:,.0f} a CPU second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--flashsim", metavar="PATH/ufliptrace")
    parser.add_argument("--mqsim", metavar="PATH/MQSim")
    given = parser.parse_args()
    print(f"uniform writes, {given.blocks} blocks of {PER_BLOCK} pages, over-provisioning 7 %, {given.engine}")
    for name, setting in SPEED.items():
        rate = speed(replace(setting, blocks=given.blocks), given.engine, given.runs)
        print(f"{name:10} {rate:>14,.0f} a CPU second")
    if given.flashsim:
        beside_flashsim(given.flashsim)
    if given.mqsim:
        beside_mqsim(given.mqsim)


if __name__ == "__main__":
    main()

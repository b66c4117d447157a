"""Traces in the formats of other tools and archives: MSR, SPC, FIU, Alibaba, Tencent, fio, MQSim; as requests."""

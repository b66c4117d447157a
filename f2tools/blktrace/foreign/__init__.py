"""Traces in the forms that other tools and archives have: MSR, SPC, FIU, Alibaba, Tencent, fio, MQSim; as requests."""

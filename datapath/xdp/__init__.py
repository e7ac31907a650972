# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""BPF programs, what loads them, and impairments.

loader.py      loads BPF objects and attaches programs, by libbpf; inspect.py: looks into an object
               without loading it (btf.py)
impair.py      configures impair.bpf.c
user.py        a user's own XDP program in an experiment (user_worker.py: by bcc)
steer.bpf.c    frames of an AF_XDP port (io/)
raw.bpf.c      whole frames for emulator and card; raw_tags.bpf.c: with their VLAN tags, where the
               kernel tells them (raw_frame.h: what both share)
slots.bpf.c    sockets of a UDP port (io/)
pace.bpf.c     events of soft-RoCE (lanes/pacer/); waits.bpf.c: threads that wait for a CPU
               (lanes/keeper/)
"""

# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The virtual card: Ethernet frames of guests over queue pairs of our engine.

A guest (a namespace behind a veth, a virtual machine behind a tap) keeps its kernel, its driver
and its program.  The card on the host's side of the device gives it a network that neither loses
frames nor shows other tenants.  `dp_vnic` (C, card.h) moves the frames.  Here is what surrounds it:

    spec.py        the file that describes cards, hosts and tenants
    program.py     the running dp_vnic, and what can be asked of it
    devices.py     whether a card can have the guests' devices now
    handshake.py   how two cards know each other by a secret, without sockets
    peering.py     the connections on which they do so, and tunnels made and ended
    service.py     a card of a file, for as long as it runs
    watching.py    the counters of cards that run

docs/vnic.md tells what the card does and what it protects from.
"""

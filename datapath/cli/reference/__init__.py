# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The reference as Markdown, made from the programs: `python -m datapath.cli.reference FOLDER`.

commands.py    each command, from its help
formats.py     experiment files and what commands print, from their JSON Schema
catalogue.py   metrics, device keys, algorithms and what they see, from their tables
markdown.py    tables and text
"""

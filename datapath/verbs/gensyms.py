# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From symbols.txt to what the linker and the forwarder need.

Writes three files:
  --map     the version script of libdpverbs.so
  --asm     one jump for each forwarded symbol, through a slot that at first
            leads to dp_forward_resolve() (forward.c), as a PLT entry does
  --header  DP_SLOT_<name> of the symbols that the front defines itself, and
            the X-macro of all slots: name, version

Symbols of the build machine's libibverbs that the table does not know are
forwarded too, so that providers of a newer rdma-core still load.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

PRIVATE = "IBVERBS_PRIVATE"
DIRECT = "DPDV"
"""Symbols that libibverbs has not: defined in direct.c, in versions of their own."""

TRAMPOLINES = {
    "x86_64": {
        "jump": "\tendbr64\n\tjmp *dp_forward_slots+{offset}(%rip)\n",
        "resolve": "\tendbr64\n\tpushq ${index}\n\tjmp dp_forward_enter\n",
        # Keep every register that can carry an argument; the pushed index
        # gives its place to nothing: it is dropped before the jump.
        "enter": """\
dp_forward_enter:
	.cfi_startproc
	.cfi_def_cfa_offset 16
	pushq %rax
	pushq %rdi
	pushq %rsi
	pushq %rdx
	pushq %rcx
	pushq %r8
	pushq %r9
	.cfi_def_cfa_offset 72
	subq $128, %rsp
	.cfi_def_cfa_offset 200
	movups %xmm0, (%rsp)
	movups %xmm1, 16(%rsp)
	movups %xmm2, 32(%rsp)
	movups %xmm3, 48(%rsp)
	movups %xmm4, 64(%rsp)
	movups %xmm5, 80(%rsp)
	movups %xmm6, 96(%rsp)
	movups %xmm7, 112(%rsp)
	movq 184(%rsp), %rdi
	subq $8, %rsp
	.cfi_def_cfa_offset 208
	call dp_forward_resolve
	addq $8, %rsp
	.cfi_def_cfa_offset 200
	movq %rax, %r11
	movups (%rsp), %xmm0
	movups 16(%rsp), %xmm1
	movups 32(%rsp), %xmm2
	movups 48(%rsp), %xmm3
	movups 64(%rsp), %xmm4
	movups 80(%rsp), %xmm5
	movups 96(%rsp), %xmm6
	movups 112(%rsp), %xmm7
	addq $128, %rsp
	.cfi_def_cfa_offset 72
	popq %r9
	popq %r8
	popq %rcx
	popq %rdx
	popq %rsi
	popq %rdi
	popq %rax
	addq $8, %rsp
	.cfi_def_cfa_offset 8
	jmp *%r11
	.cfi_endproc
""",
    },
    "aarch64": {
        "jump": "\thint 34\n\tadrp x16, dp_forward_slots\n"
        "\tadd x16, x16, :lo12:dp_forward_slots\n"
        "\tldr x16, [x16, #{offset}]\n\tbr x16\n",
        "resolve": "\thint 36\n\tmov w17, #{index}\n\tb dp_forward_enter\n",
        "enter": """\
dp_forward_enter:
	.cfi_startproc
	stp x29, x30, [sp, #-224]!
	.cfi_def_cfa_offset 224
	.cfi_offset x29, -224
	.cfi_offset x30, -216
	mov x29, sp
	stp x0, x1, [sp, #16]
	stp x2, x3, [sp, #32]
	stp x4, x5, [sp, #48]
	stp x6, x7, [sp, #64]
	str x8, [sp, #80]
	stp q0, q1, [sp, #96]
	stp q2, q3, [sp, #128]
	stp q4, q5, [sp, #160]
	stp q6, q7, [sp, #192]
	mov w0, w17
	bl dp_forward_resolve
	mov x16, x0
	ldp q6, q7, [sp, #192]
	ldp q4, q5, [sp, #160]
	ldp q2, q3, [sp, #128]
	ldp q0, q1, [sp, #96]
	ldr x8, [sp, #80]
	ldp x6, x7, [sp, #64]
	ldp x4, x5, [sp, #48]
	ldp x2, x3, [sp, #32]
	ldp x0, x1, [sp, #16]
	ldp x29, x30, [sp], #224
	.cfi_def_cfa_offset 0
	br x16
	.cfi_endproc
""",
    },
}


@dataclass(frozen=True)
class Symbol:
    name: str
    version: str
    default: bool
    handling: str  # own, forward, data, direct


def read_table(path: Path) -> list[Symbol]:
    """The rows of symbols.txt."""
    symbols = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fields = line.split("#")[0].split()
        if not fields:
            continue
        if (
            len(fields) != 4
            or fields[2] not in ("default", "old")
            or fields[3] not in ("own", "forward", "data", "direct")
        ):
            raise SystemExit(f"{path}:{number}: not a row: {line}")
        symbols.append(Symbol(fields[0], fields[1], fields[2] == "default", fields[3]))
    return symbols


def read_library(path: Path) -> list[Symbol]:
    """The versioned symbols that a libibverbs exports."""
    text = subprocess.run(
        ["nm", "-D", "--defined-only", path], check=True, capture_output=True, text=True
    ).stdout
    found = re.findall(r"^[0-9a-f]+ [A-Z] (\w+)(@@?)(IBVERBS_\w+(?:\.\d+)?)$", text, re.MULTILINE)
    return [Symbol(name, version, at == "@@", "forward") for name, at, version in found]


def merge(table: list[Symbol], library: list[Symbol]) -> list[Symbol]:
    """The table, with its private version named as in the library, and what is missing in it."""
    private = {s.version for s in library if s.version.startswith(PRIVATE)} or {PRIVATE + "_34"}
    symbols = [
        Symbol(s.name, version, s.default, s.handling)
        for s in table
        for version in (sorted(private) if s.version == PRIVATE else [s.version])
    ]
    known = {(s.name, s.version) for s in symbols}
    mine = {s.name for s in symbols if s.default}
    for s in library:
        if (s.name, s.version) not in known:
            # A newer default of a name that the front defines would bypass it.
            symbols.append(Symbol(s.name, s.version, s.default and s.name not in mine, s.handling))
    return symbols


def stands_alone(version: str) -> bool:
    """Whether a version is not one in the row IBVERBS_1.0, 1.1, ..."""
    return version.startswith((PRIVATE, DIRECT))


def version_order(version: str) -> tuple[int, list[int]]:
    digits = [int(d) for d in re.findall(r"\d+", version)]
    return (1 if stands_alone(version) else 0, digits)


def version_script(symbols: list[Symbol]) -> str:
    versions = sorted({s.version for s in symbols}, key=version_order)
    # In the first version, "local: *" would also hide the old bindings.
    last = [v for v in versions if not stands_alone(v)][-1]
    text, previous = "", ""
    for version in versions:
        names = sorted(s.name for s in symbols if s.version == version and s.default)
        text += version + " {\n"
        if names:
            text += "\tglobal:\n" + "".join(f"\t\t{name};\n" for name in names)
        if version == last:
            text += "\tlocal: *;\n"
        text += "}" + (f" {previous}" if previous else "") + ";\n\n"
        previous = "" if stands_alone(version) else version
    return text


def assembly(symbols: list[Symbol], machine: str) -> str:
    code = TRAMPOLINES[machine]
    text = '\t.text\n\t.section .note.GNU-stack,"",%progbits\n\t.text\n'
    for index, s in enumerate(symbols):
        if s.handling != "forward":
            continue
        text += f"\t.p2align 4\ndp_resolve_{index}:\n" + code["resolve"].format(index=index)
        label = s.name if s.default else f"dp_forward_{index}"
        text += f"\t.p2align 4\n\t.globl {label}\n\t.type {label}, %function\n{label}:\n"
        text += code["jump"].format(offset=8 * index)
        text += f"\t.size {label}, .-{label}\n"
        if not s.default:
            text += f"\t.symver {label}, {s.name}@{s.version}\n"
    text += "\t.p2align 4\n" + code["enter"]
    text += "\t.data\n\t.p2align 3\n\t.globl dp_forward_slots\n\t.hidden dp_forward_slots\n"
    text += "dp_forward_slots:\n"
    # Slots of the front's own symbols start empty: C looks and fills them.
    text += "".join(
        f"\t.quad dp_resolve_{index}\n" if s.handling == "forward" else "\t.quad 0\n"
        for index, s in enumerate(symbols)
    )
    return text


def header(symbols: list[Symbol]) -> str:
    text = "/* Made by gensyms.py from symbols.txt. */\n#define DP_SLOTS(X) \\\n"
    text += " \\\n".join(f'\tX("{s.name}", "{s.version}")' for s in symbols)
    text += f"\n\nenum {{\n\tDP_SLOT_COUNT = {len(symbols)},\n"
    text += "".join(
        f"\tDP_SLOT_{s.name} = {index},\n"
        for index, s in enumerate(symbols)
        if s.handling == "own" and s.default
    )
    return text + "};\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--library", type=Path, help="the build machine's libibverbs.so.1")
    parser.add_argument("--machine", choices=sorted(TRAMPOLINES), required=True)
    parser.add_argument("--map", type=Path, required=True)
    parser.add_argument("--asm", type=Path, required=True)
    parser.add_argument("--header", type=Path, required=True)
    args = parser.parse_args()

    library = read_library(args.library) if args.library and args.library.exists() else []
    symbols = merge(read_table(args.table), library)
    args.map.write_text(version_script(symbols))
    symbols = [s for s in symbols if s.handling != "direct"]
    args.asm.write_text(assembly(symbols, args.machine))
    args.header.write_text(header(symbols))


if __name__ == "__main__":
    main()

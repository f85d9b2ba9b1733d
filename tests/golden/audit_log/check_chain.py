#!/usr/bin/env python3
"""Follows the chain of an audit log by the formulas of docs/audit_log.md alone.

A second implementation, so that the log can be checked without Hufu, and so that a mistake in
Hufu's own verifier is not a mistake in both. It says only whether every link fits.
"""

import hashlib
import pathlib
import struct
import sys

SLOT = 256
LINKED = 224


def main():
    log = pathlib.Path(sys.argv[1])
    key = (log / "key0").read_bytes()
    head, seq = bytes(32), 1
    for file in sorted(log.glob("*.hfa")):
        segment = file.read_bytes()
        slots = [segment[at : at + SLOT] for at in range(0, len(segment), SLOT)]
        for number, slot in enumerate(slot for slot in slots if any(slot)):
            if number == 0 and slot[72:104] != head:
                sys.exit(f"{file.name}: the segment does not follow the one before")
            head = hashlib.sha256(key + head + slot[:LINKED]).digest()
            if head != slot[LINKED:]:
                sys.exit(f"{file.name}: slot {number} does not fit the chain")
            if number > 0:
                (found,) = struct.unpack_from("<Q", slot, 8)
                if found != seq:
                    sys.exit(f"{file.name}: slot {number} holds record {found}, not {seq}")
                seq += 1
    print(f"{seq - 1} records, head {head.hex()}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What can be seen of the good guest in the library's file: `check_library.py LIBRARY`.

  * at most 64 bytes of static TLS, of which the loader has little to give to a library that is
    opened late
  * nothing registers a destructor that would run at exit or at a thread's end
  * nothing of its own runs when it is loaded or unloaded
"""

import re
import subprocess
import sys


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main(library):
    wrong = []
    for line in output("readelf", "-lW", library).splitlines():
        fields = line.split()
        if fields[:1] == ["TLS"] and int(fields[5], 16) > 64:
            wrong.append(f"{int(fields[5], 16)} bytes of static TLS; at most 64")
    for name in output("nm", "-D", "--undefined-only", library).split():
        if re.fullmatch(r"(__cxa_atexit|__cxa_thread_atexit(_impl)?|atexit)(@.*)?", name):
            wrong.append(f"needs {name}: something has a static destructor")
    for line in output("readelf", "-SW", library).splitlines():
        found = re.search(r"\.(init|fini)_array\s+\S+\s+\S+\s+\S+\s+(\S+)", line)
        if found and int(found[2], 16) > 8:  # One entry is the compiler's own.
            wrong.append(f"{int(found[2], 16) // 8} entries in .{found[1]}_array")
    for text in wrong:
        print(f"{library}: {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

#!/usr/bin/env python3
"""Turns contract.txt into a program that compiles only if the headers agree with it.

One text for C11 and C++11. Layouts and enumerators are compile-time assertions; handles, callbacks
and functions are declared a second time, which a compiler accepts only if both say the same; error
codes are objects, not constants, so main compares those and fails if one differs.
"""

import pathlib
import re
import sys

HEADERS = ["acl/acl.h", "acl/acl_base_mdl.h", "acl/acl_dump.h", "acl/acl_platform.h", "acl/acl_prof.h",
           "acl/acl_rt_allocator.h", "acl/acl_rt_memory_soma.h", "acl/acl_tdt.h", "acl/acl_tdt_queue.h",
           "error_codes/ge_error_codes.h", "error_codes/rt_error_codes.h", "hufu/hufu.h"]

PREAMBLE = """\
#include <stdio.h>
#ifdef __cplusplus
#include <type_traits>
#define ASSERT static_assert
#define FIELD_IS(owner, field, kind, pointer) (std::is_same<decltype(((owner*)0)->field), kind>::value)
extern "C" {
#else
#define ASSERT _Static_assert
#define FIELD_IS(owner, field, kind, pointer) _Generic(&((owner*)0)->field, pointer: 1, default: 0)
#endif
"""


def pointer_to(kind):
    """The type of a pointer to a field: for an array, the star goes inside."""
    array = re.fullmatch(r"(.*?)(\[\d+\])", kind)
    return f"{array[1]} (*){array[2]}" if array else f"{kind}*"


def assertion(line):
    kind, _, rest = line.partition(" ")
    words = rest.split()
    if kind == "value":
        return f'ASSERT({words[0]} == {words[1]}, "{line}");'
    if kind == "enum":
        return f'ASSERT(sizeof({rest}) == 4, "{line}");'
    if kind == "handle":
        return f"typedef void* {rest};"
    if kind == "size":
        return f'ASSERT(sizeof({words[0]}) == {words[1]}, "{line}");'
    if kind == "field":
        owner, field, offset = words[:3]
        of = " ".join(words[3:])
        return (f'ASSERT(offsetof({owner}, {field}) == {offset}, "{line}");\n'
                f'ASSERT(FIELD_IS({owner}, {field}, {of}, {pointer_to(of)}), "{line}");')
    if kind in ("incomplete", "callback"):
        return f"typedef {rest};"
    if kind == "function":
        return f"{rest};"
    sys.exit(f"contract.txt: what is `{line}`?")


def main():
    contract, *outputs = map(pathlib.Path, sys.argv[1:])
    lines = [l.strip() for l in contract.read_text().splitlines()]
    lines = [l for l in lines if l and not l.startswith("#")]
    codes = [l.split()[1:] for l in lines if l.startswith("code ")]
    text = "".join(f"#include <{header}>\n" for header in HEADERS) + PREAMBLE
    text += "\n".join(assertion(l) for l in lines if not l.startswith("code ")) + "\n"
    text += "#ifdef __cplusplus\n}\n#endif\n\nint main(void) {\n  int differ = 0;\n"
    for name, number in codes:
        text += f'  if ({name} != {number}) {{ printf("{name} is %d, not {number}\\n", {name}); ++differ; }}\n'
    text += f'  printf("{len(lines)} facts, %d of the {len(codes)} error codes differ\\n", differ);\n  return differ != 0;\n}}\n'
    for output in outputs:
        output.write_text(text)


if __name__ == "__main__":
    main()

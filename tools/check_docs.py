#!/usr/bin/env python3
"""Compares what the documents claim with the code.

  docs/environment.md   every HUFU_ variable that the code reads is in the table with the files that
                        read it, and the table names no other reader
  docs/coverage.md      every test it names exists, every file it names is there
"""

import pathlib
import re
import sys

# env("X"), getenv("X"), number_from_env("X"), envname("X")
VARIABLE = re.compile(r'env(?:name)?\(\s*"(HUFU_[A-Z_]+)"')
SHELL_VARIABLE = re.compile(r"\$\{?(HUFU_[A-Z_]+)")
PYTHON_VARIABLE = re.compile(r"""environ(?:\.get)?[\[(]\s*["'](HUFU_[A-Z_]+)""")
TEST = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)")
QUOTED = re.compile(r"`([^`]+)`")
# Set by the build, not by users.
MACROS = {"HUFU_VERSION", "HUFU_INSTALL_PREFIX", "HUFU_SOURCE_DIR"}


def rows_of(path):
    for line in path.read_text().splitlines():
        if line.startswith("| ") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def readers(root):
    """{variable: {file, ...}}, without tests."""
    found = {}
    for folder, suffixes in (("src", ".cc .h"), ("apps", ".cc .h"), ("tools", ".sh .py")):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in suffixes.split() or not path.is_file():
                continue
            if re.search(r"_(test|fuzz)\.cc$", path.name) or path.name == pathlib.Path(__file__).name:
                continue
            text = path.read_text()
            pattern = {".sh": SHELL_VARIABLE, ".py": PYTHON_VARIABLE}.get(path.suffix, VARIABLE)
            for name in set(pattern.findall(text)) - MACROS:
                found.setdefault(name, set()).add(str(path.relative_to(root)))
    return found


def check_environment(root):
    listed = {}
    for cells in rows_of(root / "docs/environment.md"):
        name = cells[0].strip("`")
        if name.startswith("HUFU_"):
            listed[name] = set(QUOTED.findall(cells[3]))
    read = readers(root)
    problems = []
    for name in sorted(listed.keys() | read.keys()):
        said, true = listed.get(name), read.get(name, set())
        if said is None:
            problems.append(f"docs/environment.md: {name} is missing; read by {sorted(true)}")
        elif said != true:
            problems.append(f"docs/environment.md: {name}: says {sorted(said)}, "
                            f"read by {sorted(true)}")
    if len(read) < 5:
        problems.append("found almost no variables: is this script still looking in the right place?")
    return problems


def python_tests(folder):
    """{"Class.test_name", ...}"""
    found = set()
    for path in folder.rglob("*_test.py"):
        suite = None
        for line in path.read_text().splitlines():
            if match := re.match(r"class (\w+)", line):
                suite = match.group(1)
            elif match := re.match(r"    def (test_\w+)", line):
                found.add(f"{suite}.{match.group(1)}")
    return found


def check_coverage(root):
    tests = set()
    for folder in ("src", "apps", "tests", "python"):
        for path in (root / folder).rglob("*.cc"):
            tests |= {".".join(match) for match in TEST.findall(path.read_text())}
    tests |= python_tests(root / "tests")
    listing = (root / "examples/CMakeLists.txt").read_text()
    examples = {f"example/{name}" for name in re.findall(r"(?m)^example\((\w+)", listing)}
    problems = []
    rows = [cells for cells in rows_of(root / "docs/coverage.md") if re.match(r"R\d+$", cells[0])]
    if [cells[0] for cells in rows] != [f"R{n}" for n in range(1, 22)]:
        problems.append("docs/coverage.md: the rows are not R1 to R21")
    for cells in rows:
        for name in QUOTED.findall(cells[2]):
            if "/" in name and not (root / name).exists():
                problems.append(f"docs/coverage.md: {cells[0]}: no file {name}")
        for name in QUOTED.findall(cells[3]):
            known = name in tests or name in examples or ("/" in name and (root / name).exists())
            if not known:
                problems.append(f"docs/coverage.md: {cells[0]}: no test {name}")
    return problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    problems = check_environment(root) + check_coverage(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

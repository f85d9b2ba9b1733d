#!/usr/bin/env python3
"""Takes one check at a time out of a copy of the code and asks a test to notice.

  tools/mutants.py              all of tests/mutants/catalogue.py
  tools/mutants.py --list       their names
  tools/mutants.py uid range    these
  tools/mutants.py --sample 5   so many, others on another commit: what CI has time for

A line for each: caught (its test failed, as it must), SURVIVED (its test passed without the check)
or BROKEN (the code to replace is not there, or does not compile without the check). The last line is
"N caught, M survived, K broken"; anything but N alone ends with 1. The copy and its build stay in
build/mutants, so the next run builds little.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "mutants"
TREE = PLACE / "tree"
BUILD = PLACE / "build"
TEST_SECONDS = 120

sys.path.insert(0, str(ROOT / "tests" / "mutants"))
from catalogue import MUTANTS  # noqa: E402


def run(command, seconds=None):
    """(exit code, what it printed); a process that takes longer is ended and counts as failed."""
    try:
        done = subprocess.run(command, cwd=TREE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return -1, f"not finished after {seconds} s"
    return done.returncode, done.stdout


def copy_tree():
    """The files as they are here, uncommitted changes too. Equal ones keep their times."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                            stdout=subprocess.PIPE, text=True).stdout.splitlines()
    wanted = {name for name in listed if (ROOT / name).is_file()}
    for path in [p for p in TREE.rglob("*") if p.is_file()] if TREE.exists() else []:
        if str(path.relative_to(TREE)) not in wanted:
            path.unlink()
    for name in wanted:
        source, target = ROOT / name, TREE / name
        if target.exists() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def build(programs):
    return run(["cmake", "--build", str(BUILD), "--target", *sorted(programs)])


def test(mutant):
    """None when its test cannot be run; else whether it passed."""
    program = BUILD / "bin" / mutant.program
    code, text = run([str(program), f"--gtest_filter={mutant.cases}", "--gtest_brief=1"],
                     TEST_SECONDS)
    if code == 0 and " 0 tests" in text:
        return None
    return code == 0


def judge(mutant):
    path = TREE / mutant.file
    good = path.read_text()
    if good.count(mutant.old) != 1:
        return "BROKEN", f"what it replaces is {good.count(mutant.old)} times in {mutant.file}"
    path.write_text(good.replace(mutant.old, mutant.new))
    try:
        code, text = build([mutant.program])
        if code != 0:
            return "BROKEN", "does not build:\n" + text[-2000:]
        passed = test(mutant)
    finally:
        path.write_text(good)
    if passed:
        return "SURVIVED", f"{mutant.program} {mutant.cases} passed without it"
    return "caught", f"{mutant.program} {mutant.cases}"


def chosen(arguments):
    if arguments.names:
        by_name = {m.name: m for m in MUTANTS}
        unknown = [n for n in arguments.names if n not in by_name]
        if unknown:
            sys.exit(f"mutants: there is no {', '.join(unknown)}; tools/mutants.py --list names all")
        return [by_name[n] for n in arguments.names]
    if arguments.sample:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE,
                              text=True, check=False).stdout.strip() or "0"
        start = int(head[:8], 16) % len(MUTANTS)
        return [MUTANTS[(start + i) % len(MUTANTS)] for i in range(min(arguments.sample, len(MUTANTS)))]
    return list(MUTANTS)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--sample", type=int, metavar="N")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        for mutant in MUTANTS:
            print(f"{mutant.name:22} {mutant.removes}")
        return 0

    mutants = chosen(arguments)
    copy_tree()
    # Warnings stay warnings: what a check needed may be unused without it.
    code, text = run(["cmake", "-S", str(TREE), "-B", str(BUILD), "-G", "Ninja",
                      "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_EXTENSIONS=OFF"])
    if code == 0:
        code, text = build({m.program for m in mutants})
    if code != 0:
        print(text[-4000:])
        sys.exit("mutants: the code does not build as it is")
    for mutant in mutants:
        if not test(mutant):
            sys.exit(f"mutants: {mutant.program} {mutant.cases} fails, or is not there, in the code "
                     "as it is; mend that first")

    counts = {"caught": 0, "SURVIVED": 0, "BROKEN": 0}
    for mutant in mutants:
        begin = time.monotonic()
        verdict, why = judge(mutant)
        counts[verdict] += 1
        print(f"{mutant.name:22} {verdict:9} {mutant.removes}  [{why}, "
              f"{time.monotonic() - begin:.0f} s]", flush=True)
    print(f"{counts['caught']} caught, {counts['SURVIVED']} survived, {counts['BROKEN']} broken")
    return 0 if counts["caught"] == len(mutants) else 1


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())

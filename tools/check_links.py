#!/usr/bin/env python3
"""Checks that what our documents link to exists: files, and the headings that a #fragment names."""

import pathlib
import re
import subprocess
import sys
import urllib.parse

FENCE = re.compile(r"^ {0,3}(```|~~~)")
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$")
NAMED = re.compile(r"""<a\s+(?:name|id)=["']([^"']+)["']""")
INLINE = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^\s<>()]+)>?(?:\s+[\"'][^)]*)?\)")
REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?\s*$")
CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def prose(path):
    """The numbered lines outside code blocks."""
    fence = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        mark = FENCE.match(line)
        if mark and fence in (None, mark.group(1)):
            fence = None if fence else mark.group(1)
        elif not fence:
            yield number, line


def anchor(heading):
    """The fragment that GitHub and GitLab give to a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"[^\w\- ]", "", text.lower())
    return text.replace(" ", "-")


def anchors(path):
    seen = {}
    for _, line in prose(path):
        yield from NAMED.findall(line)
        heading = HEADING.match(line)
        if heading:
            name = anchor(heading.group(1))
            count = seen.get(name, 0)
            seen[name] = count + 1
            yield f"{name}-{count}" if count else name


def links(path):
    for number, line in prose(path):
        line = CODE_SPAN.sub("", line)
        for target in INLINE.findall(line) + REFERENCE.findall(line):
            yield number, target


def broken(root, path):
    for number, target in links(path):
        if ELSEWHERE.match(target):
            continue
        place, _, fragment = urllib.parse.unquote(target).partition("#")
        base = root if place.startswith("/") else path.parent
        file = base / place.lstrip("/") if place else path
        where = f"{path.relative_to(root)}:{number}"
        if not file.exists():
            yield f"{where}: {target}: no such file"
        elif fragment and file.suffix == ".md" and fragment not in set(anchors(file)):
            yield f"{where}: {target}: no such heading"


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
                           cwd=root, check=True, capture_output=True, text=True).stdout
    pages = sorted({root / name for name in names.split("\0") if name and (root / name).exists()})
    found = [line for page in pages for line in broken(root, page)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

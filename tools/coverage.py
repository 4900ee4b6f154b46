#!/usr/bin/env python3
"""Prints the line coverage of folders, from what programs built with --coverage have left.

    coverage.py OBJECTS EXECUTION_ROOT FOLDER...

OBJECTS holds the .gcno and .gcda files, EXECUTION_ROOT is where the compiler ran, FOLDERs are those of the sources.
A line counts once, however many templates and object files it is in. Files come least covered first, each with the
lines that no test reached.
"""

import json
import pathlib
import subprocess
import sys
from collections import defaultdict


def gcov_of(file, execution_root):
    """The decoded reports of gcov for one .gcda or .gcno file."""
    done = subprocess.run(
        ["gcov", "--json-format", "--stdout", str(file)],
        cwd=execution_root,
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def counts_of(objects, execution_root, folders):
    """By source file and line: how often it ran. Files that no test linked have their .gcno only."""
    counts = defaultdict(lambda: defaultdict(int))
    for notes in sorted(pathlib.Path(objects).rglob("*.gcno")):
        data = notes.with_suffix(".gcda")
        own = notes.relative_to(objects).parts[0] in folders
        if not data.exists() and not own:
            continue
        for report in gcov_of(data if data.exists() else notes, execution_root):
            for source in report["files"]:
                name = source["file"]
                if name.split("/")[0] not in folders:
                    continue
                for line in source["lines"]:
                    counts[name][line["line_number"]] += line["count"]
    return counts


def ranges(lines):
    """`3-5, 9` of [3, 4, 5, 9]."""
    parts = []
    for line in lines:
        if parts and parts[-1][1] == line - 1:
            parts[-1][1] = line
        else:
            parts.append([line, line])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def share(covered, lines):
    return 100.0 * covered / lines if lines else 100.0


def main(arguments):
    if len(arguments) < 3:
        sys.exit(__doc__)
    objects, execution_root, *folders = arguments
    counts = counts_of(objects, execution_root, folders)
    if not counts:
        sys.exit("coverage: no counts found")
    rows = []
    for name, lines in counts.items():
        missed = sorted(line for line, count in lines.items() if count == 0)
        rows.append((share(len(lines) - len(missed), len(lines)), name, len(lines), missed))
    for percent, name, lines, missed in sorted(rows):
        print(f"{percent:6.1f} %  {lines:5d}  {name}" + (f"  not: {ranges(missed)}" if missed else ""))
    for folder in folders + [""]:
        chosen = [row for row in rows if row[1].startswith(folder + "/" if folder else "")]
        lines = sum(row[2] for row in chosen)
        covered = lines - sum(len(row[3]) for row in chosen)
        print(f"{share(covered, lines):6.1f} %  {covered} of {lines} lines of {folder or 'all'}")


if __name__ == "__main__":
    main(sys.argv[1:])

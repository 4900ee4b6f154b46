#!/usr/bin/env python3
"""Counts the test cases of `bazel test` runs and lists what failed and what was skipped.

    count_tests.py EVENTS.json...      (bazel test --build_event_json_file=EVENTS.json)

The events, a file for each run, say which targets it had; the cases are in each target's test.xml, written by GoogleTest or pytest. A
target that could not be built, crashed or timed out without naming a failed case counts as one failed case, and so
does a run that Bazel gave up. The last line is `N passed, N failed, N skipped`; the exit status is 1 if anything
failed.
"""

import json
import sys
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field

MAX_OUTPUT_LINES = 60


@dataclass
class Count:
    passed: int = 0
    failed: list = field(default_factory=list)  # (name, output)
    skipped: list = field(default_factory=list)  # (name, reason)

    def line(self):
        return f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"


def text_of(element):
    parts = [element.get("message") or "", element.text or ""]
    # GoogleTest repeats the message in the text.
    return parts[1].strip() if parts[0].strip() in parts[1] else "\n".join(parts).strip()


def count_xml(label, path, status, count):
    """Adds the cases of one test.xml to `count`; `status` is what Bazel says of the whole target."""
    try:
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        cases = []
    failed_before = len(count.failed)
    for case in cases:
        parts = (case.get("classname"), case.get("name"))
        name = f"{label} " + ".".join(part for part in parts if part)
        problems = case.findall("failure") + case.findall("error")
        skip = case.find("skipped")
        if problems:
            count.failed.append((name, "\n".join(text_of(problem) for problem in problems)))
        elif skip is not None or case.get("result") == "skipped":
            reason = text_of(skip) if skip is not None else ""
            count.skipped.append((name, reason or "no reason given"))
        elif case.get("status") == "notrun":
            count.skipped.append((name, "disabled in the source"))
        else:
            count.passed += 1
    if status == "PASSED" and not cases:
        count.passed += 1
    elif status not in ("PASSED", "FLAKY") and len(count.failed) == failed_before:
        count.failed.append((label, f"{status}: the target ended without naming a failed case"))


def count_events(events, count):
    """Adds a run to `count`; `events` are the decoded lines of its build event file, in order."""
    results = {}  # the last attempt of each run and shard
    built = {}
    ending = "ended early"
    for event in events:
        name = event.get("id", {})
        if "testResult" in name:
            key = (name["testResult"]["label"], name["testResult"].get("run"), name["testResult"].get("shard"))
            results[key] = event.get("testResult", {"status": "NO_STATUS"})
        elif "targetCompleted" in name:
            built[name["targetCompleted"]["label"]] = event.get("completed", {}).get("success", False)
        elif "buildFinished" in name:
            ending = event["finished"]["exitCode"]["name"]
    failed_before = len(count.failed)
    for (label, _, _), result in sorted(results.items(), key=str):
        outputs = {o["name"]: o.get("uri", "") for o in result.get("testActionOutput", [])}
        path = urllib.request.url2pathname(urllib.parse.urlparse(outputs.get("test.xml", "")).path)
        count_xml(label, path, result.get("status", "NO_STATUS"), count)
    ran = {label for label, _, _ in results}
    for label, success in sorted(built.items()):
        if not success and label not in ran:
            count.failed.append((label, "not built: see the errors above"))
    # A BUILD file that can't be read has no event of its own.
    if ending not in ("SUCCESS", "TESTS_FAILED") and len(count.failed) == failed_before:
        count.failed.append(("bazel test", f"{ending}: see the errors above"))


def shown(output):
    lines = output.splitlines()
    if len(lines) > MAX_OUTPUT_LINES:
        lines = lines[:MAX_OUTPUT_LINES] + [f"... {len(lines) - MAX_OUTPUT_LINES} more lines"]
    return "\n".join("    " + line for line in lines)


def main(arguments):
    if not arguments:
        sys.exit(__doc__)
    count = Count()
    for path in arguments:
        try:
            with open(path, encoding="utf-8") as file:
                events = [json.loads(line) for line in file if line.strip()]
        except (OSError, json.JSONDecodeError) as error:
            sys.exit(f"count_tests: {path}: {error}")
        count_events(events, count)
    for name, reason in count.skipped:
        print(f"SKIPPED {name}: {' '.join(reason.split())}")
    for name, output in count.failed:
        print(f"FAILED  {name}\n{shown(output)}")
    print(count.line())
    return 1 if count.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

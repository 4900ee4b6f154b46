"""tools/count_tests.py on build events and XML files such as Bazel, GoogleTest 1.12 and pytest write them."""

import json
import subprocess
import sys

GOOGLETEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="4" failures="1" disabled="1" errors="0" name="AllTests">
  <testsuite name="Suite" tests="4">
    <testcase name="Good" status="run" result="completed" classname="Suite"/>
    <testcase name="Bad" status="run" result="completed" classname="Suite">
      <failure message="a.cpp:3&#x0A;Expected: 1" type=""><![CDATA[a.cpp:3
Expected: 1]]></failure>
    </testcase>
    <testcase name="NoGpu" status="run" result="skipped" classname="Suite">
      <skipped message="a.cpp:9&#x0A;no CUDA device"><![CDATA[a.cpp:9
no CUDA device]]></skipped>
    </testcase>
    <testcase name="DISABLED_Old" status="notrun" result="suppressed" classname="Suite"/>
  </testsuite>
</testsuites>"""
PYTEST = """<testsuites><testsuite name="pytest" tests="2">
<testcase classname="a_test" name="test_good"/>
<testcase classname="a_test" name="test_broken"><error message="fixture failed">trace</error></testcase>
</testsuite></testsuites>"""


def result(label, status, xml=None, attempt=1):
    outputs = [{"name": "test.xml", "uri": f"file://{xml}"}] if xml else []
    return {
        "id": {"testResult": {"label": label, "run": 1, "shard": 1, "attempt": attempt}},
        "testResult": {"status": status, "testActionOutput": outputs},
    }


def completed(label, success):
    return {
        "id": {"targetCompleted": {"label": label}},
        "completed": {"success": True} if success else {},
    }


def finished(name="TESTS_FAILED"):
    return {"id": {"buildFinished": {}}, "finished": {"exitCode": {"name": name}}}


def run(tmp_path, events, ending=(finished(),)):
    events = [*events, *ending]
    file = tmp_path / "events.json"
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    done = subprocess.run(
        [sys.executable, "tools/count_tests.py", str(file)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.splitlines()


def write(path, text):
    path.write_text(text)
    return path


def test_counts_cases_not_targets(tmp_path):
    one = write(tmp_path / "one.xml", GOOGLETEST)
    two = write(tmp_path / "two.xml", PYTEST)
    status, lines = run(tmp_path, [result("//a:one", "FAILED", one), result("//a:two", "FAILED", two)])
    assert lines[-1] == "2 passed, 2 failed, 2 skipped"
    assert status == 1
    assert "SKIPPED //a:one Suite.NoGpu: a.cpp:9 no CUDA device" in lines
    assert "SKIPPED //a:one Suite.DISABLED_Old: disabled in the source" in lines
    assert "FAILED  //a:one Suite.Bad" in lines and lines.count("    Expected: 1") == 1
    assert "FAILED  //a:two a_test.test_broken" in lines


def test_target_without_xml_is_one_case(tmp_path):
    events = [result("//a:good", "PASSED"), result("//a:late", "TIMEOUT")]
    status, lines = run(tmp_path, events)
    assert (status, lines[-1]) == (1, "1 passed, 1 failed, 0 skipped")
    assert lines[0] == "FAILED  //a:late"


def test_crash_after_passed_cases_is_a_failure(tmp_path):
    xml = write(tmp_path / "a.xml", '<testsuites><testcase name="A"/></testsuites>')
    status, lines = run(tmp_path, [result("//a:a", "FAILED", xml)])
    assert (status, lines[-1]) == (1, "1 passed, 1 failed, 0 skipped")


def test_unreadable_xml_is_a_failure(tmp_path):
    xml = write(tmp_path / "a.xml", "<testsuites><testcase")
    status, lines = run(tmp_path, [result("//a:a", "FAILED", xml)])
    assert (status, lines[-1]) == (1, "0 passed, 1 failed, 0 skipped")


def test_last_attempt_counts(tmp_path):
    xml = write(tmp_path / "a.xml", '<testsuites><testcase name="A"/></testsuites>')
    events = [result("//a:a", "FAILED", None, 1), result("//a:a", "PASSED", xml, 2)]
    assert run(tmp_path, events) == (0, ["1 passed, 0 failed, 0 skipped"])


def test_target_that_was_not_built_is_a_failure(tmp_path):
    events = [completed("//a:library", False), completed("//a:good", True), result("//a:good", "PASSED")]
    status, lines = run(tmp_path, events)
    assert (status, lines[-1]) == (1, "1 passed, 1 failed, 0 skipped")
    assert lines[0] == "FAILED  //a:library"


def test_run_that_bazel_gave_up_is_a_failure(tmp_path):
    events = [result("//a:good", "PASSED")]
    status, lines = run(tmp_path, events, [finished("BUILD_FAILURE")])
    assert (status, lines[-1]) == (1, "1 passed, 1 failed, 0 skipped")
    assert run(tmp_path, [], [])[1][-1] == "0 passed, 1 failed, 0 skipped"
    assert run(tmp_path, events, [finished("SUCCESS")]) == (0, ["1 passed, 0 failed, 0 skipped"])


def test_no_events_file_is_an_error(tmp_path):
    done = subprocess.run(
        [sys.executable, "tools/count_tests.py", str(tmp_path / "none")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "none" in done.stderr


def test_several_runs_are_added_up_and_each_has_to_end_well(tmp_path):
    """The second run's target has the name of one of the first; the third gave up."""
    runs = [
        [result("//:a", "PASSED"), finished("SUCCESS")],
        [result("//:a", "PASSED"), result("//:b", "FAILED"), finished()],
        [finished("BUILD_FAILURE")],
    ]
    files = []
    for number, events in enumerate(runs):
        text = "".join(json.dumps(event) + "\n" for event in events)
        files.append(str(write(tmp_path / f"{number}.json", text)))
    command = [sys.executable, "tools/count_tests.py", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "2 passed, 2 failed, 0 skipped")
    assert "BUILD_FAILURE" in done.stdout

"""`optimize --report`: the page shows what the JSON says, in a browser."""

import html.parser
import json
import os
import shutil
import subprocess
import tempfile

import models
import pytest
import remat_opt

needs_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium: tools/setup.sh --tests")


class Page(html.parser.HTMLParser):
    """The text of a page's elements that carry data-… attributes, as (attributes, text), and its drawings."""

    def __init__(self, text):
        super().__init__()
        self.marked, self.open, self.circles, self.outside = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "circle":
            self.circles.append(attributes)
        self.outside += [attributes[name] for name in ("src", "href") if name in attributes]
        if tag not in ("meta", "link", "br", "circle", "line", "path"):
            self.open.append((tag, [attributes, ""]))

    def handle_endtag(self, tag):
        while self.open:
            opened, element = self.open.pop()
            if any(name.startswith("data-") for name in element[0]):
                self.marked.append(element)
            if self.open:
                self.open[-1][1][1] += element[1]
            if opened == tag:
                break

    def handle_data(self, text):
        if self.open and self.open[-1][0] not in ("script", "style"):
            self.open[-1][1][1] += text

    def figure(self, name):
        return next(element for element in self.marked if element[0].get("data-figure") == name)


def dumped(path, width):
    # Its sockets want short paths.
    with tempfile.TemporaryDirectory(dir="/tmp") as profile:
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900"]
        command += [f"--user-data-dir={profile}", "--virtual-time-budget=5000", "--dump-dom", path.as_uri()]
        environment = {**os.environ, "HOME": profile, "TMPDIR": profile}
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    return Page(ran.stdout)


def browse(path, width=1200):
    """The page as its script made it: on a busy machine the browser may dump it before the script ran."""
    for _ in range(3):
        page = dumped(path, width)
        if page.circles:
            break
    return page


def report(tmp_path, name, budget, *options):
    model = models.save(name, tmp_path / "model.pt")
    page, data = tmp_path / "report.html", tmp_path / "report.json"
    arguments = ("optimize", model, "-o", tmp_path / "out.pt", "--input", models.spec(name), "--budget", budget)
    printed = remat_opt.succeed(*arguments, "--report", page, "--report", data, *options)
    return page, json.loads(data.read_text()), printed


def test_the_data_fits_itself(tmp_path):
    page, data, printed = report(tmp_path, "transformer", "60%")
    peaks, timeline = data["peak_bytes"], data["timeline"]
    assert peaks["predicted"] == timeline["peaks"]["after"]["bytes"] <= data["budget"]
    for side in ("before", "after"):
        peak = timeline["peaks"][side]
        assert max(count for _, count in timeline[side]) == peak["bytes"]
        assert sum(part["bytes"] for part in peak["holds"]) == peak["bytes"]
    recomputed = [value for value in data["values"] if value["decision"] == "recomputed"]
    assert len(recomputed) == data["recomputed"] > 0
    assert {value["module_path"].split(".")[0] for value in recomputed} <= {"0", "1"}
    chosen = [point for point in data["curve"] if point["chosen"]]
    assert [point["predicted_peak"] for point in chosen] == [peaks["predicted"]]
    assert len(data["curve"]) > 3
    assert "optimize" in data["command"] and str(page) in data["command"]
    assert data["versions"].startswith("remat ") and "LibTorch 2." in data["versions"]
    assert f"{100 * data['recompute_share']:.1f} %" in printed


@needs_browser
@pytest.mark.parametrize("width", [1200, 420])
def test_the_page_shows_the_data(tmp_path, width):
    path, data, _ = report(tmp_path, "transformer", "60%", "--verify")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") and "http" not in text.replace("http://www.w3.org/2000/svg", "")
    page = browse(path, width)
    assert page.outside == []
    peaks = data["peak_bytes"]
    for name, value in {
        "original peak": peaks["original"],
        "predicted peak": peaks["predicted"],
        "measured peak": peaks["measured"],
        "budget": data["budget"],
    }.items():
        attributes, shown = page.figure(name)
        assert attributes["data-value"] == str(value) and f"({value} bytes)" in shown
    assert page.figure("command")[1] == data["command"]
    assert page.figure("storages recomputed")[1] == str(data["recomputed"])
    root = next(element[0] for element in page.marked if element[0].get("data-module") == "")
    for decision in ("kept", "recomputed"):
        total = sum(value["bytes"] for value in data["values"] if value["decision"] == decision)
        assert root[f"data-{decision}"] == str(total)
    parts = [int(element[0]["data-value"]) for element in page.marked if "number" in element[0].get("class", "")]
    holds = [part["bytes"] for side in ("before", "after") for part in data["timeline"]["peaks"][side]["holds"]]
    assert sorted(parts) == sorted(holds)
    # Two peaks and a point a plan, one of them filled.
    assert len(page.circles) == 2 + len(data["curve"])
    assert sum("chosen" in circle["class"] for circle in page.circles) == 1


@needs_browser
def test_a_page_of_an_unchanged_model(tmp_path):
    path, data, _ = report(tmp_path, "mlp", "100%")
    assert not data["changed"]
    page = browse(path)
    assert page.figure("original peak")[0]["data-value"] == str(data["peak_bytes"]["original"])


def test_text_in_a_model_cannot_end_the_data(tmp_path):
    folder = tmp_path / "<script>"
    folder.mkdir()
    path, data, _ = report(folder, "mlp", "75%")
    assert "<script>" in data["model"] and "<script>/model" not in path.read_text(encoding="utf-8")

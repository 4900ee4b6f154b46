"""What was measured, as Markdown."""


def bytes_text(count):
    if count is None:
        return "-"
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def share(value, base):
    return "-" if value is None or not base else f"{100 * value / base:.1f} %"


def device_text(result):
    devices = result["environment"].get("devices")
    return devices[0]["name"] if devices else result["device"]


def tests_text(tests):
    if not tests:
        return "CUDA tests: not run\n"
    text = f"CUDA tests: {tests['passed']} passed, {tests['failed']} failed, {tests['skipped']} skipped\n"
    for program, counts in tests["programs"].items():
        for name in counts["failed"]:
            text += f"\n- failed: {program}: {name}"
        if counts["error"]:
            text += f"\n- {program}: {counts['error']}"
        for name, reason in counts["skipped"].items():
            text += f"\n- skipped: {program}: {name}: {reason}"
    return text + "\n"


def parity_text(parity):
    if not parity:
        return "-"
    difference = parity["max_difference"]
    return parity["worst"] + (f" ({difference:.0e}, {parity['first']})" if difference else "")


def model_text(title, model):
    text = f"\n## {title}, {model.get('input', '')}\n"
    if model.get("error"):
        text += f"\n{model['error']}\n"
    base = model.get("systems", {}).get("eager", {})
    text += "\n| system | step's peak | of eager | predicted | step | of eager | parity |\n|---|---|---|---|---|---|---|\n"
    for system, measured in model.get("systems", {}).items():
        if measured.get("error"):
            text += f"| {system} | {measured['error'].replace('|', '/')} | | | | | |\n"
            continue
        planned = model["optimize"].get(system.removeprefix("remat_"), {})
        name = f"{system} ({planned['asked']})" if planned else system
        predicted = planned.get("peak_bytes", {}).get("predicted")
        milliseconds = 1e3 * measured["step_seconds"]
        text += (
            f"| {name} | {bytes_text(measured['peak_bytes'])} | {share(measured['peak_bytes'], base.get('peak_bytes'))} "
            f"| {bytes_text(predicted)} | {milliseconds:.1f} ms "
            f"| {share(measured['step_seconds'], base.get('step_seconds'))} | {parity_text(measured.get('parity'))} |\n"
        )
    for system, measured in model.get("systems", {}).items():
        if measured.get("parity_with_itself", "bitwise") != "bitwise":
            text += f"\n{system} gives other bits when its step is run again ({measured['parity_with_itself']})\n"
    for budget, planned in model.get("optimize", {}).items():
        if planned.get("error"):
            text += f"\nremat-opt at {budget} %: {planned['error']}\n"
        if planned.get("note"):
            text += f"\nat {budget} %, so that min was asked for: {planned['note']}\n"
    return text


def markdown(result):
    text = f"# Remat on {device_text(result)}\n\n"
    text += f"torch {result['environment'].get('torch')}, {result.get('seconds')} s"
    text += ", tiny models: the check itself is tested\n\n" if result["tiny"] else "\n\n"
    if result["environment"].get("error"):
        return text + result["environment"]["error"] + "\n"
    text += tests_text(result.get("tests"))
    for name, model in result["models"].items():
        text += model_text(name, model)
    return text

"""Peak against step time, one panel a model, as SVG."""

from xml.sax.saxutils import escape

WIDTH, HEIGHT, MARGIN = 620, 420, 60  # of a panel, pixels
PER_ROW = 2
COLOURS = {"peer": "#b3541e", "remat": "#1f5fa8"}


def ticks(low: float, high: float) -> list[float]:
    step = next(step for step in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 100, 1e9) if (high - low) / step <= 8)
    first = int(low / step)
    return [i * step for i in range(first, int(high / step) + 2) if low <= i * step <= high + 1e-9]


def marker(kind: str, x: float, y: float) -> str:
    if kind == "remat":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{COLOURS[kind]}"/>'
    return f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{COLOURS[kind]}"/>'


class Panel:
    def __init__(self, result: dict):
        self.result = result
        self.rows = [row for row in result["systems"] if "peak_ratio" in row]
        times = [row["time_ratio"] for row in self.rows] + [1.0]
        span = max(times) - min(times)
        self.left, self.right = min(times) - 0.05 * span - 0.01, max(times) + 0.05 * span + 0.05
        self.top = 1.05 * max([row["peak_ratio"] for row in self.rows] + [1.0])

    def x(self, ratio: float) -> float:
        return MARGIN + (ratio - self.left) / (self.right - self.left) * (WIDTH - 2 * MARGIN)

    def y(self, ratio: float) -> float:
        return HEIGHT - MARGIN - ratio / self.top * (HEIGHT - 2 * MARGIN)

    def axes(self) -> list[str]:
        title = f"{self.result['model']}, batch {self.result['batch']}"
        parts = [f'<text x="{MARGIN}" y="{MARGIN - 20}" font-size="15" font-weight="bold">{escape(title)}</text>']
        bottom, right = HEIGHT - MARGIN, WIDTH - MARGIN
        for value in ticks(self.left, self.right):
            x = self.x(value)
            parts.append(f'<line x1="{x:.1f}" y1="{MARGIN}" x2="{x:.1f}" y2="{bottom}" stroke="#e4e4e4"/>')
            parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{value:.2f}</text>')
        for value in ticks(0, self.top):
            y = self.y(value)
            parts.append(f'<line x1="{MARGIN}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#e4e4e4"/>')
            parts.append(f'<text x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.0%}</text>')
        middle = (MARGIN + right) / 2
        parts.append(f'<text x="{middle}" y="{bottom + 36}" text-anchor="middle">step time / eager</text>')
        parts.append(
            f'<text transform="translate(14 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">step peak / eager</text>'
        )
        return parts

    def labels(self) -> list[str]:
        """Beside the points, each at least a line below the one before."""
        parts, below = [], float("-inf")
        for row in sorted(self.rows, key=lambda row: -row["peak_ratio"]):
            x, y = self.x(row["time_ratio"]), max(self.y(row["peak_ratio"]) + 4, below + 11)
            below = y
            at_right = x > WIDTH - MARGIN - 190
            place = f'x="{x - 8:.1f}" text-anchor="end"' if at_right else f'x="{x + 8:.1f}"'
            colour = COLOURS[row["kind"]]
            parts.append(f'<text {place} y="{y:.1f}" font-size="10" fill="{colour}">{escape(row["label"])}</text>')
        return parts

    def svg(self) -> str:
        parts = self.axes()
        remat = sorted((row for row in self.rows if row["kind"] == "remat"), key=lambda row: row["peak_ratio"])
        line = " ".join(f"{self.x(row['time_ratio']):.1f},{self.y(row['peak_ratio']):.1f}" for row in remat)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS["remat"]}" stroke-opacity="0.4"/>')
        for row in self.rows:
            parts.append(marker(row["kind"], self.x(row["time_ratio"]), self.y(row["peak_ratio"])))
        return "\n".join(parts + self.labels())


def svg(results: list[dict]) -> str:
    columns = min(PER_ROW, len(results))
    lines = -(-len(results) // PER_ROW)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * WIDTH}" height="{lines * HEIGHT}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, result in enumerate(results):
        x, y = number % PER_ROW * WIDTH, number // PER_ROW * HEIGHT
        parts.append(f'<g transform="translate({x} {y})">\n{Panel(result).svg()}\n</g>')
    return "\n".join([*parts, "</svg>"]) + "\n"

"""Draws the pictures of the pages: losses and penalties from the package's functions, peers from measured.json, and
those of the tutorials by running the tutorials.

Run it from anywhere, with matplotlib installed: python docs/plots.py
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import steepest as st
from steepest import cli
from steepest.learners.penalties import Penalty
from steepest.report.chart import COLOURS

IMAGES = Path(__file__).parent / "img"
# The same bytes whenever nothing has changed: no date, no random names; letters stay letters.
mpl.rcParams.update({"svg.hashsalt": "steepest", "svg.fonttype": "none", "font.size": 9, "legend.frameon": False})
mpl.rcParams["axes.prop_cycle"] = mpl.cycler(color=COLOURS)  # distinct for colour-blind readers too
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))


def save(figure: Any, name: str) -> None:
    """Writes the figure without its date."""
    figure.savefig(IMAGES / name, metadata={"Date": None, "Creator": None}, bbox_inches="tight")


def level_one(penalty: Penalty, angle: float) -> Any:
    """The weights in one direction at which a penalty is 1, by bisection."""
    direction, low, high = np.array([np.cos(angle), np.sin(angle)]), 0.0, 4.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if penalty.value(middle * direction) > 1 else (middle, high)
    return low * direction


def draw_penalties() -> None:
    """The weights (w_1, w_2) at which each penalty is 1."""
    figure, axes = plt.subplots(figsize=(4.2, 4.2))
    shown = {
        "l2": Penalty("l2"),
        "l1": Penalty("l1"),
        "elasticnet, l1_ratio 0.15": Penalty("elasticnet"),
        "elasticnet, l1_ratio 0.5": Penalty("elasticnet", l1_ratio=0.5),
    }
    for (name, penalty), style in zip(shown.items(), LINES, strict=False):
        points = np.array([level_one(penalty, angle) for angle in np.linspace(0, 2 * np.pi, 121)])
        axes.plot(points[:, 0], points[:, 1], linestyle=style, label=name)
    axes.axhline(0, color="grey", linewidth=0.5)
    axes.axvline(0, color="grey", linewidth=0.5)
    axes.set(aspect="equal", xlim=(-1.8, 1.8), ylim=(-1.8, 1.8), xlabel="w₁", ylabel="w₂", title="R(w) = 1")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    save(figure, "penalties.svg")


MEASURED = json.loads((Path(__file__).parent / "measured.json").read_text(encoding="utf-8"))
OURS, THEIRS, THIRD = "#0072b2", "#999999", "#d55e00"  # distinct for colour-blind readers too


def draw_reviews() -> None:
    """Seconds and accuracy of each program on the same reviews."""
    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    for row in MEASURED["reviews"]["rows"]:
        ours = row["who"] == "steepest"
        x, y = row["seconds"], 100 * row["accuracy"]
        axes.plot(x, y, "o" if ours else "s", color=OURS if ours else THEIRS, markersize=11 if ours else 8)
        style = {"weight": "bold", "color": OURS} if ours else {"color": "#444444"}
        label = f"{row['who']}\n{x:.1f} s, {y:.1f} %"
        axes.annotate(label, (x, y), (9, 0), textcoords="offset points", va="center", **style)
    axes.set(xscale="log", xlim=(0.7, 60), ylim=(87.2, 91.4), ylabel="accuracy on test rows, %")
    axes.set(
        xlabel="seconds from the compressed file to the saved model",
        title="25,000 film reviews, words and pairs of words",
    )
    axes.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    save(figure, "peers.svg")


def draw_jobs() -> None:
    """The other program's seconds over those of steepest, task by task; also where steepest is slower."""
    rows = sorted(MEASURED["jobs"]["rows"], key=lambda row: row["ratio"])
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    names = [f"{row['job']} ({row['peer']})" for row in rows]
    colours = [OURS if row["ratio"] >= 1 else THIRD for row in rows]
    axes.barh(names, [row["ratio"] - 1 for row in rows], left=1, color=colours)
    for place, row in enumerate(rows):
        axes.annotate(
            f"{row['ratio']:.1f}×", (max(1, row["ratio"]), place), (4, 0), textcoords="offset points", va="center"
        )
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set(xscale="log", xlim=(0.4, 90), xlabel="seconds of the other program / seconds of steepest")
    axes.set_xticks([0.5, 1, 2, 5, 10, 20, 50], ["0.5", "1", "2", "5", "10", "20", "50"])
    axes.minorticks_off()
    save(figure, "jobs.svg")


def draw_tables() -> None:
    """Accuracy or R² of nine tables by four programs."""
    rows = MEASURED["tables"]["rows"][::-1]
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    marks = {"steepest": ("o", OURS), "tuned pipeline": ("s", THEIRS), "boosting": ("^", THIRD), "vw": ("x", "#444444")}
    for name, (mark, colour) in marks.items():
        places = range(len(rows))
        axes.plot([100 * row[name] for row in rows], places, mark, color=colour, markersize=8, alpha=0.85, label=name)
    axes.set_yticks(range(len(rows)), [row["table"] for row in rows])
    axes.set(xlabel="accuracy, or 100 R², on test rows, %")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.14), ncols=4)
    save(figure, "tables.svg")


BLOCK = re.compile(r"^```(python|console)(?: loose)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def draw_tutorial(page: Path) -> None:
    """Runs the snippets and commands of a tutorial in an empty directory; its last picture goes to the images."""
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        namespace: dict[str, Any] = {}
        for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if language == "python":
                exec(compile(text, page.name, "exec"), namespace)
            else:
                for command in re.findall(r"^\$ steepest (.+)$", text, re.MULTILINE):
                    cli.main(shlex.split(command))
        for picture in Path().glob("tutorial-*.svg"):
            (IMAGES / picture.name).write_bytes(picture.read_bytes())


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    draw_reviews()
    draw_jobs()
    draw_tables()
    save(st.plot.losses(), "losses.svg")
    save(st.plot.norms(), "norms.svg")
    draw_penalties()
    for page in sorted((Path(__file__).parent / "tutorials").glob("*.md")):
        draw_tutorial(page)

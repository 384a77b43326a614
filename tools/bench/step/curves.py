#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Draws accuracy over time from what slow_link.sh --curves has written: usage: curves.py FILE OUT.svg

Lines of FILE are "WAY RUN SECONDS ACCURACY", one for each epoch. Times are drawn by their
logarithm, accuracies by that of what is missing to 1.
"""

import math
import sys
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 64, 150, 16, 44
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf")


def read(path):
    """{way: [[(seconds, accuracy), ...] of each run]}"""
    ways = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            fields = line.split()
            if len(fields) != 4:
                sys.exit(f"curves: {path}:{number}: not 'WAY RUN SECONDS ACCURACY': {line.strip()}")
            way, run, seconds, accuracy = fields
            ways.setdefault(way, {}).setdefault(run, []).append((float(seconds), float(accuracy)))
    if not ways:
        sys.exit(f"curves: {path}: no lines")
    return {way: list(runs.values()) for way, runs in ways.items()}


def mean_run(runs):
    """Epoch by epoch, over the runs that have it."""
    epochs = max(map(len, runs))
    columns = ([run[epoch] for run in runs if epoch < len(run)] for epoch in range(epochs))
    return [tuple(sum(values) / len(values) for values in zip(*column)) for column in columns]


def nice_steps(low, high):
    """1, 2, 3 and 5 times powers of ten from `low` to `high`."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step for e in exponents for step in (10.0**e, 2 * 10.0**e, 3 * 10.0**e, 5 * 10.0**e) if low <= step <= high]


def draw(ways):
    curves = {way: mean_run(runs) for way, runs in ways.items()}
    points = [point for curve in curves.values() for point in curve]
    first, last = (function(seconds for seconds, _ in points) for function in (min, max))
    missing = [max(1 - accuracy, 1e-4) for _, accuracy in points]
    low, high = min(missing) * 0.9, max(missing) * 1.1
    first, last = first * 0.9, last * 1.1

    def x(seconds):
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(seconds / first) / math.log(last / first)

    def y(lacks):
        return TOP + (HEIGHT - TOP - BOTTOM) * math.log(max(lacks, 1e-4) / low) / math.log(high / low)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    bottom = HEIGHT - BOTTOM
    for seconds in nice_steps(first, last):
        out.append(f'<path d="M{x(seconds):.1f} {TOP}V{bottom}" stroke="#ddd"/>'
                   f'<text x="{x(seconds):.1f}" y="{bottom + 16}" text-anchor="middle">{seconds:g}</text>')
    for lacks in nice_steps(low, high):
        out.append(f'<path d="M{LEFT} {y(lacks):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{y(lacks) + 4:.1f}" text-anchor="end">{1 - lacks:.4g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">seconds</text>'
               f'<text transform="translate(14 {(TOP + bottom) / 2}) rotate(-90)" text-anchor="middle">'
               'validation accuracy</text>')
    for number, (way, curve) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = "L".join(f"{x(seconds):.1f} {y(1 - accuracy):.1f}" for seconds, accuracy in curve)
        out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.extend(f'<circle cx="{x(seconds):.1f}" cy="{y(1 - accuracy):.1f}" r="3" fill="{colour}"/>'
                   for seconds, accuracy in curve)
        out.append(f'<text x="{WIDTH - RIGHT + 12}" y="{TOP + 16 + 18 * number}" fill="{colour}">'
                   f"{escape(way)}</text>")
    return "\n".join([*out, "</svg>", ""])


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.splitlines()[0])
    ways = read(sys.argv[1])
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(draw(ways))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Statistics of the measurements: medians with 95 % intervals from the bootstrap. Same values, same interval: the random numbers
have a fixed seed."""
import math
import random
import statistics

LEVEL = 0.95
RESAMPLES = 2000
SEED = 24


def bootstrap(rounds, statistic):
    """{"median", "low", "high"}: the statistic of the rounds, and the interval of it over rounds drawn with replacement. A
    statistic that is infinite or None for more of the draws than the interval leaves out makes that end None: not known."""
    rng = random.Random(SEED)
    draws = sorted(_number(statistic(rng.choices(rounds, k=len(rounds)))) for _ in range(RESAMPLES)) if len(rounds) > 1 else []
    cut = int(len(draws) * (1 - LEVEL) / 2)
    low, high = (draws[cut], draws[-1 - cut]) if draws else (-math.inf, math.inf)
    return {"median": statistic(rounds), "low": _known(low), "high": _known(high)}


def _number(x):
    return math.inf if x is None else x


def _known(x):
    return x if math.isfinite(x) else None


def interval(values):
    """The median of values with its interval."""
    return bootstrap(list(values), statistics.median)


def ratio_of_medians(pairs):
    """Median of the first / median of the second, of [(first, second)] of the same rounds. A single round's ratio may be noise: the
    second can be near 0 in it. None: the median of the second is 0 or less."""
    pairs = list(pairs)

    def ratio(drawn):
        below = statistics.median(p[1] for p in drawn)
        return statistics.median(p[0] for p in drawn) / below if below > 0 else None

    return bootstrap(pairs, ratio)


def spread(values):
    """interval() with the quartiles and the values themselves."""
    values = list(values)
    q = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return {**interval(values), "quartiles": [q[0], q[2]], "values": values}


def floor_of(noise):
    """How far from 1 the interval of a ratio reaches that is 1 but for noise: the noise floor. None: not known."""
    ends = (noise["low"], noise["high"])
    return None if None in ends else max(abs(e - 1) for e in ends)


def inside(e):
    """Is the median within its interval? Ends that are not known hold it."""
    return (e["low"] is None or e["low"] <= e["median"]) and (e["high"] is None or e["median"] <= e["high"])


def moved(before, after):
    """Did a figure change by more than both intervals? "up", "down", "" (no), None (an interval is not known)."""
    if None in (before["low"], before["high"], after["low"], after["high"]):
        return None
    if after["low"] > before["high"]:
        return "up"
    return "down" if after["high"] < before["low"] else ""


def text(estimate, digits=2, scale=1.0, unit=""):
    """"0.87 (0.80–0.95)"; an end that is not known is a "?"."""
    def number(x):
        return "?" if x is None else "%.*f" % (digits, x * scale)

    return "%s%s (%s–%s)" % (number(estimate["median"]), unit, number(estimate["low"]), number(estimate["high"]))

"""A fused loop that sums masses on [0, 1] in cells, with their moments."""

from refinecal._kernels.jit import jit

ORDER = 6  # moments kept of each cell: 0 to 5


@jit()
def gather(places, values, weights, shift, out):  # type: ignore[no-untyped-def]
    """Add weights * (values - shift * places) at places in [0, 1] to the moments of the cells.

    ``out[c, q]`` sums mass * d**q, with d the distance from the middle of the cell, in cells: -1/2 to 1/2.
    Empty weights are 1. Return the sum of the masses and that of their absolute values.
    """
    cells, total, size = len(out), 0.0, 0.0
    for i in range(len(places)):
        x = places[i] * cells
        c = min(int(x), cells - 1)
        d, mass = x - c - 0.5, values[i] - shift * places[i]
        if len(weights):
            mass *= weights[i]
        total += mass
        size += abs(mass)
        for power in range(ORDER):
            out[c, power] += mass
            mass *= d
    return total, size

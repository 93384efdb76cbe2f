"""An exponential, a maximum and a transpose as vector code, which Numba does not generate itself."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from refinecal._kernels.jit import FAST, LOG2_E, inline, jit

TILE = 128  # rows per tile: enough independent vectors to hide the latency of the sums
PAD = 16  # unused columns of a tile, so that its rows do not share the same lines of the cache
WIDE = 128  # more classes than this are read along the row; k**TILE must stay below 2**1024


@intrinsic
def _scale_by_power(context: Any, p: Any, i: Any) -> Any:
    """Return p * 2**i by adding i to the exponent bits (no overflow check; i is an int32)."""
    kind, bits, shift = (
        (ir.FloatType(), 32, 23) if p == types.float32 else (ir.DoubleType(), 64, 52)
    )

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer = ir.IntType(bits)
        power = args[1] if bits == 32 else builder.sext(args[1], integer)
        power = builder.shl(power, ir.Constant(integer, shift))
        return builder.bitcast(builder.add(builder.bitcast(args[0], integer), power), kind)

    return p(p, types.int32), build


@intrinsic
def larger(context: Any, a: Any, b: Any) -> Any:
    """Return the larger of two floats, or either if one is NaN: only so can a maximum vectorise.

    The NaN itself comes back through z - max.
    """
    flags = ("nnan", "nsz")

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = builder.fcmp_ordered(">", args[0], args[1], flags=flags)
        return builder.select(first, args[0], args[1], flags=flags)

    return a(a, a), build


def exp2(t: Any) -> Any:
    """Return 2**t for t in [smallest exponent, 0], within about one rounding error."""
    return np.exp2(t)


# Minimax polynomials of 2**r - 1 on [-1/2, 1/2], relative to 2**r: errors 9.1e-8 and 3.4e-18.
A1, A2, A3, A4, A5 = (
    np.float32(v)
    for v in (0.69314697758, 0.24022242074, 0.055507337666, 0.0096715131281, 0.0013264720157)
)
B1, B2, B3 = 0.6931471805599453258, 0.2402265069591013126, 0.05550410866482008317
B4, B5, B6 = 9.618129107594119465e-3, 1.3333558146774633096e-3, 1.5403530457112760378e-4
B7, B8 = 1.5252733493116755388e-5, 1.3215435282015968044e-6
B9, B10, B11 = 1.017819957592705362e-7, 7.0737832934605141054e-9, 4.4347707260109679786e-10
ONE_32, HALF_32 = np.float32(1), np.float32(0.5)
C1, C3, C5, C7, C9 = (np.float32(2 * LOG2_E / j) for j in (1, 3, 5, 7, 9))
SQRT_HALF = 0x3F3504F3  # the bits of sqrt(1/2) in float32


@overload(exp2)
def _overload_exp2(t: Any) -> Any:
    def exp2_32(t: Any) -> Any:
        i = np.int32(t - HALF_32)  # t <= 0, so truncation rounds to the nearest
        r = t - np.float32(i)
        p = ((((A5 * r + A4) * r + A3) * r + A2) * r + A1) * r + ONE_32
        return _scale_by_power(p, i)  # type: ignore[call-arg]

    def exp2_64(t: Any) -> Any:
        i = np.int32(t - 0.5)
        r = t - np.float64(i)
        p = ((((((B11 * r + B10) * r + B9) * r + B8) * r + B7) * r + B6) * r + B5) * r + B4
        p = (((p * r + B3) * r + B2) * r + B1) * r + 1.0
        return _scale_by_power(p, i)  # type: ignore[call-arg]

    return exp2_32 if t == types.float32 else exp2_64


@intrinsic
def _exponent(context: Any, p: Any) -> Any:
    """Return the exponent e of a positive p = m * 2**e with sqrt(1/2) <= m < sqrt(2), as a float."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer = ir.IntType(32)
        bits = builder.sub(builder.bitcast(args[0], integer), ir.Constant(integer, SQRT_HALF))
        return builder.sitofp(builder.ashr(bits, ir.Constant(integer, 23)), ir.FloatType())

    return types.float32(types.float32), build


@intrinsic
def _mantissa(context: Any, p: Any) -> Any:
    """Return the m of ``_exponent``."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer = ir.IntType(32)
        bits = builder.bitcast(args[0], integer)
        power = builder.sub(bits, ir.Constant(integer, SQRT_HALF))
        power = builder.and_(power, ir.Constant(integer, -(2**23)))
        return builder.bitcast(builder.sub(bits, power), ir.FloatType())

    return types.float32(types.float32), build


@inline(fastmath=FAST)
def log2(p):  # type: ignore[no-untyped-def]
    """Return the logarithm of a normal positive float32, within about two rounding errors."""
    m: Any = _mantissa(p)  # type: ignore[call-arg]
    s = (m - ONE_32) / (m + ONE_32)  # log m = 2 atanh s
    v = s * s
    odd = (((C9 * v + C7) * v + C5) * v + C3) * v + C1
    return _exponent(p) + s * odd


@intrinsic
def transpose_8x8(context: Any, z: Any, i: Any, j: Any, tile: Any) -> Any:
    """Set tile[j : j + 8, i : i + 8] = z[i : i + 8, j : j + 8].T, which loops would do number by number.

    Eklundh's way: for h = 1, 2, 4, rows m and m + h swap the lanes in which bit h of m and of the lane
    differ.
    """

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, args[0])
        target = context.make_array(signature.args[3])(context, builder, args[3])
        dtype = signature.args[0].dtype
        vector, align = ir.VectorType(context.get_data_type(dtype), 8), dtype.bitwidth // 8

        def address(array: Any, row: Any, m: int, column: Any) -> Any:
            row = builder.add(row, ir.Constant(row.type, m))
            index = builder.add(builder.mul(row, builder.extract_value(array.shape, 1)), column)
            return builder.bitcast(builder.gep(array.data, [index]), vector.as_pointer())

        def mask(lanes: list[int]) -> Any:
            return ir.Constant(ir.VectorType(ir.IntType(32), 8), lanes)

        rows = [builder.load(address(source, args[1], m, args[2]), align=align) for m in range(8)]
        for h in (1, 2, 4):
            low = mask([8 + lane - h if lane & h else lane for lane in range(8)])
            high = mask([8 + lane if lane & h else lane + h for lane in range(8)])
            for m in (m for m in range(8) if not m & h):
                pair = rows[m], rows[m + h]
                rows[m] = builder.shuffle_vector(*pair, low)
                rows[m + h] = builder.shuffle_vector(*pair, high)
        for m, row in enumerate(rows):
            builder.store(row, address(target, args[2], m, args[1]), align=align)
        return context.get_dummy_value()

    return types.void(z, types.intp, types.intp, tile), build


# ---- tiles: a few rows, transposed, so that vector lanes run over rows -------------------------------------


@jit()
def transpose(z, tile):  # type: ignore[no-untyped-def]
    """Copy rows into columns of the tile: squares of 8 x 8 by shuffles, the edges one by one."""
    rows, k = z.shape
    whole_rows, whole_columns = rows - rows % 8, k - k % 8
    for r in range(0, whole_rows, 8):
        for j in range(0, whole_columns, 8):
            transpose_8x8(z, r, j, tile)  # type: ignore[call-arg]
        for j in range(whole_columns, k):
            for i in range(r, r + 8):
                tile[j, i] = z[i, j]
    for r in range(whole_rows, rows):
        for j in range(k):
            tile[j, r] = z[r, j]


@inline(fastmath=FAST)
def column_maxima(tile, top):  # type: ignore[no-untyped-def]
    for r in range(TILE):
        top[r] = larger(tile[0, r], tile[1, r])  # type: ignore[call-arg]
    for j in range(2, len(tile), 2):
        for r in range(TILE):
            top[r] = larger(top[r], larger(tile[j, r], tile[j + 1, r]))  # type: ignore[call-arg]


@inline(fastmath=FAST)
def row_maximum(row):  # type: ignore[no-untyped-def]
    top = row[0]
    for j in range(1, len(row)):
        top = larger(top, row[j])  # type: ignore[call-arg]
    return top

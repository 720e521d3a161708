"""Models of one operator, with random weights, scales and zero points, for each entry of the table
and each type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import numpy as np

from tests.models import (
    OperatorOf,
    TensorOf,
    binary,
    convolution,
    fully_connected,
    model,
    number,
    pool,
    scaled,
    single,
    softmax,
    strided,
    transposed,
)

RNG = np.random.default_rng


def _widths(row: Sequence[int]) -> TensorOf:
    data = np.reshape(np.array(row, np.int32), (-1, 2))
    return TensorOf(data.shape, "int32", data=data)


def _of_type(dtype: str) -> Iterator[tuple[str, bytes]]:
    """Products and pools of other types than int8."""
    yield "conv2d ", convolution(RNG(1), (9, 7, 5), (3, 3), 6, dtype=dtype)
    yield (
        "conv2d point, relu6, ",
        convolution(RNG(2), (4, 5, 6), (1, 1), 7, activation=3, dtype=dtype),
    )
    yield (
        "conv2d dilated, batch, ",
        convolution(
            RNG(3), (9, 9, 3), (3, 2), 4, dilations=(2, 3), batch=2, same=False, dtype=dtype
        ),
    )
    yield "depthwise_conv2d ", convolution(RNG(4), (9, 7, 5), (3, 3), 0, multiplier=1, dtype=dtype)
    yield (
        "depthwise_conv2d multiplier, ",
        convolution(RNG(5), (6, 5, 3), (3, 3), 0, multiplier=4, strides=(2, 2), dtype=dtype),
    )
    yield "fully_connected ", fully_connected(RNG(6), 3, 33, 7, dtype=dtype)
    yield "fully_connected deep, ", fully_connected(RNG(7), 2, 1500, 3, dtype=dtype)
    shape = ((7, 6, 5), (3, 3), (2, 2))
    yield "average_pool2d ", pool(*shape, same=True, average=True, dtype=dtype)
    yield (
        "average_pool2d valid, relu, ",
        pool((8, 6, 5), (3, 2), (2, 2), same=False, average=True, activation=1, dtype=dtype),
    )
    yield "max_pool2d ", pool(*shape, same=True, average=False, dtype=dtype)


@cache
def cases() -> Mapping[str, bytes]:
    """By the entry's name and what is particular of the form."""
    return {
        "conv2d same": convolution(RNG(1), (9, 7, 5), (3, 3), 6),
        "conv2d valid, stride": convolution(
            RNG(2), (9, 8, 4), (3, 2), 5, strides=(2, 3), same=False
        ),
        "conv2d same, even stride": convolution(RNG(3), (8, 8, 3), (3, 3), 4, strides=(2, 2)),
        "conv2d same, long kernel": convolution(RNG(4), (11, 6, 1), (10, 4), 4, strides=(2, 2)),
        "conv2d dilated": convolution(RNG(5), (11, 9, 3), (3, 2), 4, dilations=(2, 3)),
        "conv2d dilated, valid": convolution(
            RNG(6), (11, 9, 3), (3, 2), 4, dilations=(3, 2), same=False
        ),
        "conv2d point": convolution(RNG(7), (4, 5, 6), (1, 1), 7, activation=1),
        "conv2d point, stride": convolution(RNG(8), (5, 5, 6), (1, 1), 7, strides=(2, 2)),
        "conv2d one scale": convolution(RNG(9), (5, 5, 3), (3, 3), 4, per_channel=False),
        "conv2d no bias, relu6": convolution(
            RNG(10), (5, 5, 3), (3, 3), 4, bias=False, activation=3
        ),
        "conv2d batch": convolution(RNG(11), (5, 4, 3), (3, 3), 4, batch=3),
        "conv2d batch of points": convolution(RNG(12), (5, 4, 3), (1, 1), 4, batch=2),
        "depthwise_conv2d same": convolution(RNG(13), (9, 7, 5), (3, 3), 0, multiplier=1),
        "depthwise_conv2d valid": convolution(
            RNG(14), (9, 1, 6), (5, 1), 0, multiplier=1, same=False, activation=1
        ),
        "depthwise_conv2d stride": convolution(
            RNG(15), (8, 8, 3), (3, 3), 0, multiplier=1, strides=(2, 2), activation=3
        ),
        "depthwise_conv2d multiplier": convolution(RNG(16), (6, 5, 3), (3, 3), 0, multiplier=4),
        "depthwise_conv2d dilated": convolution(
            RNG(17), (9, 9, 3), (3, 3), 0, multiplier=2, dilations=(2, 2)
        ),
        "depthwise_conv2d batch": convolution(RNG(18), (5, 4, 3), (3, 3), 0, multiplier=1, batch=2),
        "fully_connected": fully_connected(RNG(19), 1, 33, 7),
        "fully_connected rows, relu": fully_connected(RNG(20), 5, 16, 9, activation=1),
        "fully_connected per channel": fully_connected(RNG(21), 2, 16, 9, per_channel=True),
        "fully_connected no bias": fully_connected(RNG(22), 2, 16, 9, bias=False),
        "average_pool2d valid": pool((8, 6, 5), (3, 2), (2, 2), same=False, average=True),
        "average_pool2d same": pool((7, 6, 5), (3, 3), (2, 2), same=True, average=True),
        "average_pool2d all, relu": pool((5, 4, 6), (5, 4), (1, 1), same=False, average=True,
                                         activation=1),
        "average_pool2d same, batch": pool((7, 6, 5), (3, 3), (2, 2), same=True, average=True,
                                           batch=3),
        "max_pool2d same, batch": pool((7, 6, 5), (3, 3), (2, 2), same=True, average=False,
                                       batch=2),
        "max_pool2d valid": pool((8, 6, 5), (3, 2), (2, 2), same=False, average=False),
        "max_pool2d same, relu6": pool((7, 6, 5), (3, 3), (2, 2), same=True, average=False,
                                       activation=3),
        "add": binary("ADD", (0.05, 0.07, 0.1), (-4, 7, 3)),
        "add relu, far apart": binary("ADD", (0.5, 0.011, 0.2), (-128, 127, -128), activation=1),
        "add same scales": binary("ADD", (0.1, 0.1, 0.1)),
        "add channels, a constant": binary("ADD", (0.05, 0.07, 0.1), (-4, 7, 3), constant=1,
                                           shapes=((1, 5, 3, 4), (4,))),
        "add both broadcast": binary("ADD", (0.05, 0.07, 0.1), (-4, 7, 3),
                                     shapes=((3, 1, 4), (1, 5, 4))),
        "add int16": binary("ADD", (0.002, 0.0013, 0.0031), dtype="int16"),
        "add float32, relu6": binary("ADD", (0, 0, 0), activation=3, dtype="float32"),
        "sub": binary("SUB", (0.05, 0.07, 0.1), (-4, 7, 3)),
        "sub a number, relu": binary("SUB", (0.05, 0.07, 0.1), (-4, 7, 3), activation=1,
                                     constant=0, shapes=((1,), (2, 3, 4))),
        "sub int16": binary("SUB", (0.002, 0.0013, 0.0031), dtype="int16"),
        "sub float32": binary("SUB", (0, 0, 0), dtype="float32"),
        "mul": binary("MUL", (0.05, 0.07, 0.2), (-4, 7, 3)),
        "mul relu6, a constant": binary("MUL", (0.05, 0.02, 0.02), (-128, 3, -128), constant=1,
                                        activation=3, shapes=((1, 3, 2, 4), (1, 1, 1, 4))),
        "mul rows": binary("MUL", (0.05, 0.07, 0.2), (-4, 7, 3), shapes=((2, 3, 4), (3, 1))),
        "mul int16": binary("MUL", (0.002, 0.0013, 0.05), dtype="int16"),
        "mul float32": binary("MUL", (0, 0, 0), dtype="float32", shapes=((2, 3, 4), (1, 3, 1))),
        "maximum": binary("MAXIMUM", (0.1, 0.1, 0.1), (3, 3, 3), activation=None),
        "maximum broadcast": binary("MAXIMUM", (0.1, 0.1, 0.1), activation=None, constant=1,
                                    shapes=((2, 3, 4), (4,))),
        "maximum float32": binary("MAXIMUM", (0, 0, 0), activation=None, dtype="float32"),
        "minimum": binary("MINIMUM", (0.1, 0.1, 0.1), (3, 3, 3), activation=None),
        "minimum float32": binary("MINIMUM", (0, 0, 0), activation=None, dtype="float32"),
        **{
            f"relu {words}": single(code, [scaled((2, 3, 7), *x)], [scaled((2, 3, 7), *y)])
            for words, code, x, y in (
                ("", "RELU", (0.1, -5, "int8"), (0.06, 9, "int8")),
                ("up", "RELU", (0.1, 0, "int8"), (0.004, -128, "int8")),
                ("of six", "RELU6", (0.1, -5, "int8"), (0.1, -5, "int8")),
                ("int16", "RELU", (0.001, 0, "int16"), (0.0007, 0, "int16")),
                ("of six, int16", "RELU6", (0.0003, 0, "int16"), (0.0003, 0, "int16")),
                ("float32", "RELU", (0, 0, "float32"), (0, 0, "float32")),
                ("of six, float32", "RELU6", (0, 0, "float32"), (0, 0, "float32")),
            )
        },
        **{
            f"leaky_relu {dtype}": single(
                "LEAKY_RELU", [scaled((2, 3, 7), 0.1 * s, -5, dtype)],
                [scaled((2, 3, 7), 0.07 * s, 9, dtype)], "LeakyReluOptions", Alpha=0.3,
            )
            for dtype, s in (("int8", 1.0), ("int16", 0.01), ("float32", 1.0))
        },
        "prelu": binary("PRELU", (0.1, 0.01, 0.08), (-5, 20, 9), activation=None, constant=1,
                        shapes=((1, 3, 2, 4), (1, 1, 4))),
        "prelu float32": binary("PRELU", (0, 0, 0), activation=None, constant=1, dtype="float32",
                                shapes=((1, 3, 2, 4), (1, 1, 4))),
        **{
            f"{code.lower()} {words}": single(code, [scaled((3, 90), *x)], [scaled((3, 90), *y)])
            for code, words, x, y in (
                ("LOGISTIC", "", (0.05, 3, "int8"), (1 / 256, -128, "int8")),
                ("LOGISTIC", "steep", (0.7, -128, "int8"), (1 / 256, -128, "int8")),
                ("LOGISTIC", "flat", (0.003, 127, "int8"), (1 / 256, -128, "int8")),
                ("LOGISTIC", "int16", (0.0007, 0, "int16"), (2**-15, 0, "int16")),
                ("LOGISTIC", "int16, power of two", (2**-12, 0, "int16"), (2**-15, 0, "int16")),
                ("LOGISTIC", "float32", (0, 0, "float32"), (0, 0, "float32")),
                ("TANH", "", (0.05, 3, "int8"), (1 / 128, 0, "int8")),
                ("TANH", "steep", (0.7, -128, "int8"), (1 / 128, 0, "int8")),
                ("TANH", "flat", (0.003, 127, "int8"), (1 / 128, 0, "int8")),
                ("TANH", "int16", (0.0007, 0, "int16"), (2**-15, 0, "int16")),
                ("TANH", "int16, power of two", (2**-11, 0, "int16"), (2**-15, 0, "int16")),
                ("TANH", "float32", (0, 0, "float32"), (0, 0, "float32")),
                ("QUANTIZE", "", (0.1, -5, "int8"), (0.07, 20, "int8")),
                ("QUANTIZE", "to int16", (0.1, -5, "int8"), (0.001, 0, "int16")),
                ("QUANTIZE", "from int16", (0.001, 0, "int16"), (0.1, -5, "int8")),
                ("QUANTIZE", "from uint8", (0.1, 128, "uint8"), (0.1, 0, "int8")),
                ("QUANTIZE", "floats", (0, 0, "float32"), (0.03, -5, "int8")),
                ("QUANTIZE", "floats to int16", (0, 0, "float32"), (0.0005, 0, "int16")),
                ("DEQUANTIZE", "", (0.03, -5, "int8"), (0, 0, "float32")),
                ("DEQUANTIZE", "int16", (0.0007, 0, "int16"), (0, 0, "float32")),
            )
        },
        **{
            f"{kind} {words}": single(
                code, [scaled((2, 5, 3, 7), 0.1 * s, -5, dtype), number(*axes)],
                [scaled(made, y * s, z, dtype)], "ReducerOptions", KeepDims=keep,
            )
            for kind, code, words, axes, keep, made, dtype, s, y, z in (
                ("mean", "MEAN", "", (1, 2), True, (2, 1, 1, 7), "int8", 1.0, 0.06, 9),
                ("mean", "MEAN", "same scale", (1, 2), False, (2, 7), "int8", 1.0, 0.1, -5),
                ("mean", "MEAN", "channels", (-1,), True, (2, 5, 3, 1), "int8", 1.0, 0.06, 9),
                ("mean", "MEAN", "apart", (1, 3), False, (2, 3), "int8", 1.0, 0.06, 9),
                ("mean", "MEAN", "int16", (1, 2), True, (2, 1, 1, 7), "int16", 0.01, 0.06, 0),
                ("mean", "MEAN", "float32", (1, 2), True, (2, 1, 1, 7), "float32", 0, 0, 0),
                ("sum", "SUM", "", (1, 2), True, (2, 1, 1, 7), "int8", 1.0, 0.9, 9),
                ("sum", "SUM", "float32", (2,), True, (2, 5, 1, 7), "float32", 0, 0, 0),
                ("reduce_max", "REDUCE_MAX", "", (1, 2), False, (2, 7), "int8", 1.0, 0.1, -5),
                ("reduce_max", "REDUCE_MAX", "float32", (1,), False, (2, 3, 7), "float32", 0, 0, 0),
                ("reduce_min", "REDUCE_MIN", "", (3,), True, (2, 5, 3, 1), "int8", 1.0, 0.1, -5),
            )
        },
        **{
            f"pad {words}": single(
                code, [scaled(x, 0.1, 7, dtype), _widths(widths), *more],
                [scaled(y, 0.1, 7, dtype)], f"{table}Options",
            )
            for words, code, table, x, widths, y, dtype, more in (
                ("", "PAD", "Pad", (1, 3, 4, 5), (0, 0, 1, 2, 0, 1, 0, 0), (1, 6, 5, 5),
                 "int8", []),
                ("channels", "PAD", "Pad", (3, 2, 1, 2), (0, 0, 0, 0, 0, 0, 2, 1), (3, 2, 1, 5),
                 "int8", []),
                ("int16", "PAD", "Pad", (1, 3, 1, 5), (0, 1, 1, 2, 0, 1, 0, 0), (2, 6, 2, 5),
                 "int16", []),
                ("float32", "PAD", "Pad", (1, 3, 4, 5), (0, 0, 1, 2, 0, 1, 0, 0), (1, 6, 5, 5),
                 "float32", []),
                ("a number", "PADV2", "PadV2", (2, 3), (1, 0, 0, 2), (3, 5), "int8",
                 [TensorOf((1,), scales=[0.1], zero=7, data=np.array([-90], np.int8))]),
            )
        },
        **{
            f"concatenation {words}": single(
                "CONCATENATION", [scaled(x, 0.1, 7, dtype) for x in shapes],
                [scaled(y, 0.1, 7, dtype)], "ConcatenationOptions", Axis=axis,
            )
            for words, shapes, y, axis, dtype in (
                ("", [(1, 3, 2, 4), (1, 3, 2, 1)], (1, 3, 2, 5), 3, "int8"),
                ("rows", [(1, 2, 2, 4), (1, 1, 2, 4), (1, 3, 2, 4)], (1, 6, 2, 4), -3, "int8"),
                ("int16", [(3, 2), (3, 5)], (3, 7), 1, "int16"),
                ("float32", [(3, 2), (3, 5)], (3, 7), 1, "float32"),
            )
        },
        "concatenation of a constant": single(
            "CONCATENATION",
            [scaled((2, 3), 0.1), TensorOf((2, 2), scales=[0.1], data=np.eye(2, dtype=np.int8))],
            [scaled((2, 5), 0.1)], "ConcatenationOptions", Axis=1,
        ),
        "split": single("SPLIT", [number(2), scaled((1, 3, 6, 2), 0.1)],
                        [scaled((1, 3, 2, 2), 0.1)] * 3, "SplitOptions", NumSplits=3),
        "split float32": single("SPLIT", [number(0), scaled((4, 6), 0, 0, "float32")],
                                [scaled((2, 6), 0, 0, "float32")] * 2, "SplitOptions", NumSplits=2),
        "split_v": single("SPLIT_V", [scaled((3, 6), 0.1), number(1, 5), number(1)],
                          [scaled((3, 1), 0.1), scaled((3, 5), 0.1)], "SplitVOptions", NumSplits=2),
        "slice": single("SLICE", [scaled((2, 5, 4, 3), 0.1), number(0, 1, 2, 0),
                                  number(2, 3, -1, 3)], [scaled((2, 3, 2, 3), 0.1)]),
        "slice float32": single("SLICE", [scaled((7,), 0, 0, "float32"), number(2), number(4)],
                                [scaled((4,), 0, 0, "float32")]),
        "strided_slice": strided((1, 7, 6, 3), [(0, 1, 0, 0), (1, 7, 6, 3), (1, 2, 3, 1)],
                                 (1, 3, 2, 3)),
        "strided_slice masks": strided((4, 7, 3), [(1, 5, 9), (3, 9, 9), (1, 1, 1)], (2, 7, 3),
                                       (6, 6, 0)),
        "strided_slice backwards": strided((7, 4), [(-1, 0), (0, 4), (-2, 1)], (3, 4)),
        "strided_slice shrunk": strided((7, 4, 2), [(-2, 0, 0), (0, 4, 2), (1, 1, 1)], (4, 2),
                                        (0, 0, 1)),
        "strided_slice int16": strided((7, 4), [(1, 0), (6, 4), (2, 1)], (3, 4), dtype="int16"),
        "transpose": single("TRANSPOSE", [scaled((2, 3, 5), 0.1), number(2, 0, 1)],
                            [scaled((5, 2, 3), 0.1)]),
        "transpose float32": single("TRANSPOSE", [scaled((4, 3), 0, 0, "float32"), number(1, 0)],
                                    [scaled((3, 4), 0, 0, "float32")]),
        **{
            f"resize_nearest_neighbor {words}": single(
                "RESIZE_NEAREST_NEIGHBOR", [scaled((b, *x, 3), 0.1, 0, dtype), number(*y)],
                [scaled((b, *y, 3), 0.1, 0, dtype)], "ResizeNearestNeighborOptions",
                AlignCorners=corners, HalfPixelCenters=centres,
            )
            for words, b, x, y, corners, centres, dtype in (
                ("", 1, (3, 4), (6, 8), False, False, "int8"),
                ("batch, odd", 2, (3, 4), (5, 9), False, False, "int8"),
                ("many", 1, (9, 9), (23, 25), False, False, "int8"),
                ("smaller", 1, (6, 9), (2, 6), False, False, "int8"),
                ("centres", 1, (3, 4), (9, 7), False, True, "int8"),
                ("corners", 1, (3, 4), (6, 7), True, False, "int8"),
                ("int16", 1, (3, 4), (6, 4), False, False, "int16"),
                ("float32", 1, (3, 4), (6, 4), False, False, "float32"),
            )
        },
        **{
            f"transpose_conv {words}": transposed(
                RNG(n), image, kernel, 4, strides, same=same, batch=batch, dtype=dtype
            )
            for n, (words, image, kernel, strides, same, batch, dtype) in enumerate((
                ("", (3, 4, 5), (3, 3), (2, 2), True, 1, "int8"),
                ("even", (3, 4, 5), (2, 2), (2, 2), True, 1, "int8"),
                ("valid", (3, 4, 5), (3, 2), (2, 2), False, 1, "int8"),
                ("valid, wide", (3, 2, 5), (5, 4), (2, 3), False, 2, "int8"),
                ("gaps", (3, 4, 2), (1, 2), (3, 2), True, 1, "int8"),
                ("stride 1", (4, 3, 3), (3, 2), (1, 1), True, 1, "int8"),
                ("int16", (3, 4, 5), (3, 3), (2, 2), True, 1, "int16"),
                ("float32", (3, 4, 5), (3, 3), (2, 2), True, 1, "float32"),
            ))
        },
        **{f"{words}{d}": made for d in ("int16", "float32") for words, made in _of_type(d)},
        "softmax float32": softmax(4, 37, 0, 1.0, "float32"),
        "softmax float32, beta": softmax(4, 37, 0, 0.3, "float32"),
        "softmax": softmax(1, 10, 0.1, 1.0),
        "softmax rows, beta": softmax(4, 37, 0.03, 2.0),
        "softmax steep": softmax(3, 12, 1.7, 1.0),
        "reshape": model(
            [
                TensorOf((2, 6), scales=[0.1]),
                TensorOf((3, 4), scales=[0.1]),
                TensorOf((2,), "int32", data=np.array([3, 4], np.int32)),
            ],
            [OperatorOf("RESHAPE", [0, 2], [1], "ReshapeOptions")],
            [0],
            [1],
        ),
    }  # fmt: skip

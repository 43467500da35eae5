"""The most that the table of operators may hold, with reasons: see operator_table.py."""

from __future__ import annotations

from dataclasses import dataclass, field

from onnx import TensorProto

ANY_NUMBER = 0xFFFF
FP32, INT32, INT64, BOOL = "FP32", "INT32", "INT64", "BOOL"
NAMES = {
    TensorProto.FLOAT: FP32,
    TensorProto.UINT8: "UINT8",
    TensorProto.INT8: "INT8",
    TensorProto.UINT16: "UINT16",
    TensorProto.INT16: "INT16",
    TensorProto.INT32: INT32,
    TensorProto.INT64: INT64,
    TensorProto.STRING: "BYTES",
    TensorProto.BOOL: BOOL,
    TensorProto.FLOAT16: "FP16",
    TensorProto.DOUBLE: "FP64",
    TensorProto.UINT32: "UINT32",
    TensorProto.UINT64: "UINT64",
    TensorProto.BFLOAT16: "BF16",
}


@dataclass(frozen=True)
class Policy:
    """The most that a rule may allow, also where the suite would show more."""

    types: tuple[str, ...]
    results: tuple[str, ...] = ()  # empty: as `types`
    parameters: tuple[int, ...] = ()  # inputs that are axes, shapes or limits: constants only
    values: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of attributes
    without: tuple[str, ...] = ()  # attributes that are never allowed
    clamped: tuple[
        int, ...
    ] = ()  # parameters of which INT64 beyond 32 bits are taken as the limits
    most_inputs: int = ANY_NUMBER
    most_outputs: int = 1


# Numbers are only moved, so any type that the processor holds as it is may be there.
MOVED = (FP32, INT32, BOOL)
NUMBERS = Policy((FP32,))
COMPARED = Policy((FP32,), (BOOL,))
LOGICAL = Policy((BOOL,))


def moves(*parameters: int) -> Policy:
    return Policy(MOVED, parameters=parameters)


def of_axes(*parameters: int) -> Policy:
    return Policy((FP32,), parameters=parameters)


# Operators that are not here are not in the table. INT64, UINT64 and UINT32 are computed in 32 bits
# and FP64 in FP32, so none of these is anywhere but in constants and shapes. Of INT32 the suite
# shows small numbers only, so it may be moved and not be computed with.
POLICY: dict[str, Policy] = {
    **dict.fromkeys(
        "Abs Acos Acosh Add Asin Asinh Atan Atanh Ceil Celu Cos Cosh Div Elu Erf Exp Floor "
        "GlobalAveragePool GlobalMaxPool HardSigmoid HardSwish LeakyRelu Log MatMul Max Mean "
        "Min Mish Mul Neg PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus "
        "Softsign Sqrt Sub Sum Tan Tanh ThresholdedRelu Gelu LRN Softmax LogSoftmax Hardmax "
        "LpNormalization MeanVarianceNormalization Conv Gemm InstanceNormalization "
        "LayerNormalization GroupNormalization RMSNormalization Swish".split(),
        NUMBERS,
    ),
    **dict.fromkeys("Equal Greater GreaterOrEqual Less LessOrEqual".split(), COMPARED),
    **dict.fromkeys("And Or Xor Not".split(), LOGICAL),
    **dict.fromkeys(
        "Concat Flatten Identity Transpose DepthToSpace SpaceToDepth".split(),
        moves(),
    ),
    "Reshape": moves(1),
    "Squeeze": moves(1),
    "Unsqueeze": moves(1),
    "Expand": moves(1),
    "Tile": moves(1),
    "Gather": moves(1),
    "Split": Policy(MOVED, parameters=(1,), most_outputs=ANY_NUMBER),
    "Slice": Policy(MOVED, parameters=(1, 2, 3, 4), clamped=(1, 2)),
    "Pad": moves(1, 2, 3),
    "Clip": Policy((FP32,), parameters=(1, 2)),
    # Without training_mode: where that is true the numbers are random.
    "Dropout": Policy((FP32,), parameters=(1,), most_inputs=2),
    # Of numbers that are equal OpenVINO takes the first.
    "ArgMax": Policy((FP32,), (INT64,), values={"select_last_index": ("0",)}),
    "ArgMin": Policy((FP32,), (INT64,), values={"select_last_index": ("0",)}),
    "Where": Policy(MOVED),
    "BatchNormalization": Policy((FP32,), values={"training_mode": ("0",)}),
    # Into smaller types, and from numbers with a fraction, the processor rounds otherwise.
    "Cast": Policy((FP32, INT32, BOOL, "UINT8", "INT8"), (FP32,), values={"to": ("1",)}),
    "MaxPool": NUMBERS,
    # The last window beyond the border counts padding that is not there.
    "AveragePool": Policy((FP32,), values={"ceil_mode": ("0",)}),
    "ConvTranspose": Policy((FP32,), without=("output_shape",)),
    **dict.fromkeys(
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
        "ReduceSum ReduceSumSquare".split(),
        of_axes(1),
    ),
}

# Attributes that a node must have for its case to count, and the values: their default is computed
# otherwise.
REQUIRED: dict[tuple[str, int], dict[str, str]] = {
    ("Softmax", 11): {"axis": "-1"},  # the last axis is the same by the old and the new definition
}
# Operators that are left out, and the reason. It is shown where a model has the operator.
EXCEPTIONS = {
    "Attention": "it ignores attributes such as the window",
    "BitShift": "it computes otherwise",
    "DequantizeLinear": "some quantised models are answered wrongly for one row",
    "DynamicQuantizeLinear": "rounding differs",
    "GRU": "it ignores the attribute layout",
    "If": "control flow was not compared",
    "LSTM": "it ignores layout, and with peepholes its input",
    "Loop": "control flow was not compared",
    "NonMaxSuppression": "its answers are INT64, computed in 32 bits",
    "QuantizeLinear": "UINT16 is computed otherwise",
    "RNN": "it ignores the attribute layout",
    "Resize": "several modes are computed otherwise",
    "Scan": "control flow was not compared",
    "TopK": "of equal numbers it takes others",
}


@dataclass(frozen=True)
class Danger:
    """An operator that OpenVINO is not given, even where it is asked for.

    A request could end the process by it, or read memory that is not its own. `inputs` are those
    that must not come from a request; `types` empty: any.
    """

    inputs: tuple[int, ...]
    reason: str
    types: str = ""


WHOLE_NUMBERS = "INT8 UINT8 INT16 UINT16 INT32 UINT32 INT64 UINT64"
# Each is shown by a case of the same name in operator_cases.py, on every run of this tool.
DANGERS = {
    "Col2Im": Danger((1, 2), "a block of 0 ends the process"),
    "DFT": Danger((1, 2), "a length of 0 ends the process"),
    "GRU": Danger((4,), "a length that is out of range is not refused"),
    "GatherND": Danger((1,), "an index that is out of range reads other memory"),
    "LSTM": Danger((4,), "a length that is out of range is not refused"),
    "Mod": Danger((0, 1), "it divides whole numbers in 32 bits, and by 0", WHOLE_NUMBERS),
    "RNN": Danger((4,), "a length that is out of range is not refused"),
    "Range": Danger((0, 1, 2), "a delta of 0 ends the process", WHOLE_NUMBERS),
    "Scatter": Danger((1,), "an index that is out of range writes to other memory"),
    "ScatterElements": Danger((1,), "an index that is out of range writes to other memory"),
}
# Integer attributes that are places or counts: any value is as good as those that were tried. All
# others are allowed with the values of cases that were right.
FREE_INTEGERS = {"axis", "group", "num_groups", "size", "blocksize", "num_outputs"}

#!/usr/bin/env python3
"""Makes the table of operators that OpenVINO computes as ONNX defines them.

    .venv/bin/python tools/operator_table.py [--check]

Each case of tools/operator_cases.py is compiled by the openvino wheel as Lumen compiles it and
compared with the right answer, in a child process, since some end the process. A row of the table
then allows, for each operator and each version of it: the datatypes and attribute values of cases
that were right, and nothing that a wrong case has. operator_policy.py narrows that further where
the cases show too little, with reasons. Writes src/backends/openvino/operators.inc; --check
compares only.
Errors: exit status 1 where the table in the tree is another, or allows a case that is wrong, or
where OpenVINO by now refuses a request that should be dangerous (DANGERS).
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto
from operator_cases import (
    OLDEST_OPSET,
    Case,
    dangerous,
    older,
    schema_of,
    suite,
    variants,
    with_constants,
)
from operator_policy import (
    ANY_NUMBER,
    DANGERS,
    EXCEPTIONS,
    FREE_INTEGERS,
    INT64,
    NAMES,
    POLICY,
    REQUIRED,
)

# Neither reports, nor writes below the home folder.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
# So that it answers cases of the newest operator sets, too.
os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"

AttrType = onnx.defs.OpSchema.AttrType
ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src" / "backends" / "openvino" / "operators.inc"
# As src/backends/openvino/backend.cc compiles it.
PROPERTIES = {
    "INFERENCE_NUM_THREADS": 1,
    "NUM_STREAMS": 1,
    "PERFORMANCE_HINT": "THROUGHPUT",
    "INFERENCE_PRECISION_HINT": "f32",
}
CASE_SECONDS = 60


@dataclass
class Outcome:
    operator: str
    version: int  # of the operator
    inputs: list[str]
    results: list[str]
    attributes: dict[str, str]  # with the defaults
    given: dict[str, str]
    is_right: bool
    is_wrong: bool  # false for a refusal, too
    difference: str  # where it is not right
    name: str = ""


def value_of(attribute: onnx.AttributeProto, free: set[str]) -> str:
    """As the check of a model writes it; "*": any value of this kind is allowed."""
    if attribute.type == AttributeProto.INT and attribute.name not in free:
        return str(attribute.i)
    if attribute.type == AttributeProto.STRING:
        return attribute.s.decode()
    return "*"


def attributes_of(case: Case) -> tuple[dict[str, str], dict[str, str]]:
    """Those that the node gives, and all that it has by the operator's defaults."""
    schema = schema_of(case)
    free = FREE_INTEGERS - set(REQUIRED.get((case.node.op_type, schema.since_version), {}))
    given = {one.name: value_of(one, free) for one in case.node.attribute}
    defaults = {
        name: value_of(one.default_value, free)
        for name, one in schema.attributes.items()
        if one.default_value.name and one.type in (AttrType.INT, AttrType.STRING)
    }
    return given, defaults | given


def answer_of_reference(model: onnx.ModelProto, inputs: list[Any]) -> list[Any] | None:
    """None: ONNX Runtime refuses it, and nothing is known."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [one.name for one in session.get_inputs()]
        return list(session.run(None, dict(zip(names, inputs, strict=True))))
    except Exception:
        return None


def compile_case(case: Case) -> Any:
    import openvino

    core = openvino.Core()
    return core.compile_model(core.read_model(case.model.SerializeToString()), "CPU", PROPERTIES)


def run(compiled: Any, inputs: list[Any]) -> list[Any]:
    """By start_async(): infer() of 2026.4 swallows exceptions and gives unwritten memory."""
    request = compiled.create_infer_request()
    request.start_async(dict(enumerate(inputs)))
    request.wait()
    return [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]


def difference(case: Case) -> str | None:
    """Empty: right. None: nothing can be said. In the child process."""
    sets = []
    for inputs, wanted in case.sets:
        right = answer_of_reference(case.model, inputs) if wanted is None else wanted
        if right is None:
            return None
        sets.append((inputs, right))
    compiled = compile_case(case)
    for inputs, wanted in sets:
        results = run(compiled, inputs)
        if len(results) != len(wanted):
            return f"{len(results)} outputs, wanted {len(wanted)}"
        for got, one in zip(results, wanted, strict=True):
            answer = np.asarray(one)
            if got.dtype != answer.dtype or got.shape != answer.shape:
                return f"{got.dtype} {got.shape}, wanted {answer.dtype} {answer.shape}"
            if answer.dtype.kind in "iub":
                if not np.array_equal(got, answer):
                    return "other numbers"
            else:
                np.testing.assert_allclose(got, answer, rtol=case.rtol, atol=case.atol)
    return ""


def answer(case: Case) -> str:
    """Of a case that a request must not bring; a refusal is raised. In the child process."""
    return f"answered {run(compile_case(case), case.sets[0][0])[0].ravel()[:3]}"


def try_from(how: Callable[[Case], str | None], cases: list[Case], pipe: int) -> None:
    for case in cases:
        signal.alarm(CASE_SECONDS)
        try:
            said = how(case)
        except BaseException as error:
            lines = str(error).strip().splitlines() or [""]
            said = f"{type(error).__name__}: {lines[0][:120]}"
        blob = pickle.dumps(said)
        os.write(pipe, len(blob).to_bytes(4, "little") + blob)


def try_all(how: Callable[[Case], str | None], cases: list[Case]) -> list[str | None]:
    """One child tries them until one ends it; the next child begins behind that."""
    said: list[str | None] = []
    while len(said) < len(cases):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try_from(how, cases[len(said) :], write)
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            while size := pipe.read(4):
                said.append(pickle.loads(pipe.read(int.from_bytes(size, "little"))))
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            said.append(f"signal {signal.Signals(os.WTERMSIG(status)).name}")
    return said


def cases_to_try() -> Iterator[Case]:
    for case in suite():
        policy = POLICY.get(case.node.op_type)
        if policy is not None and not case.node.domain:
            case = with_constants(case, policy.parameters)
            yield case
            yield from older(case)
    for case in variants():
        yield case
        yield from older(case)


def outcomes() -> list[Outcome]:
    found = []
    cases = list(cases_to_try())
    for case, said in zip(cases, try_all(difference, cases), strict=True):
        if said is None:
            continue
        graph, node = case.model.graph, case.node
        types = {v.name: v.type.tensor_type.elem_type for v in [*graph.input, *graph.output]}
        types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
        given, attributes = attributes_of(case)
        found.append(
            Outcome(
                operator=node.op_type,
                version=schema_of(case).since_version,
                inputs=[NAMES.get(types.get(name, 0), "") for name in node.input],
                results=[NAMES.get(types.get(name, 0), "") for name in node.output],
                attributes=attributes,
                given=given,
                is_right=not said,
                is_wrong=bool(said) and not said.startswith("RuntimeError: "),
                difference=said,
                name=case.name,
            )
        )
    return found


def dangers_that_are_none() -> list[str]:
    """Those that this version of OpenVINO refuses; prints the effect of the others."""
    cases = list(dangerous())
    none = sorted(set(DANGERS) ^ {case.node.op_type for case in cases})
    for case, said in zip(cases, try_all(answer, cases), strict=True):
        operator = case.node.op_type
        print(f"{operator} ({DANGERS[operator].reason}): {said}")
        if said is None or said.startswith("RuntimeError"):
            none.append(operator)
    return none


@dataclass
class Rule:
    operator: str
    first_opset: int
    last_opset: int
    types: list[str]
    results: list[str]
    attributes: dict[str, set[str]]
    required: dict[str, str]
    parameters: tuple[int, ...]
    clamped: tuple[int, ...]
    most_inputs: int
    most_outputs: int

    def allows(self, one: Outcome) -> bool:
        if any(one.given.get(name) != value for name, value in self.required.items()):
            return False
        for name, value in one.attributes.items():
            if name not in self.attributes:
                return False
            if "*" not in self.attributes[name] and value not in self.attributes[name]:
                return False
        data = [
            kind
            for i, kind in enumerate(one.inputs)
            if kind and not (i in self.parameters and kind == INT64)
        ]
        results = [kind for kind in one.results if kind]
        return (
            len(one.inputs) <= self.most_inputs
            and len(one.results) <= self.most_outputs
            and all(kind in self.types for kind in data)
            and all(kind in (self.results or self.types) for kind in results)
        )

    def text(self) -> str:
        attributes = " ".join(
            ("+" if name in self.required else "")
            + (name if "*" in values else f"{name}={'|'.join(sorted(values))}")
            for name, values in sorted(self.attributes.items())
            if values
        )
        bits = [sum(1 << place for place in places) for places in (self.parameters, self.clamped)]
        return (
            f'    {{"", "{self.operator}", {self.first_opset}, {self.last_opset}, '
            f'"{" ".join(self.types)}", "{" ".join(self.results)}", "{attributes}", '
            f"{bits[0]:#x}, {bits[1]:#x}, {self.most_inputs}, {self.most_outputs}}},"
        )


def opsets_of(operator: str, version: int) -> tuple[int, int]:
    """The operator sets that mean this version of the operator."""
    later = [
        schema.since_version
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.name == operator and schema.domain == "" and schema.since_version > version
    ]
    return max(version, OLDEST_OPSET), min(later, default=onnx.defs.onnx_opset_version() + 1) - 1


def rule_of(operator: str, version: int, cases: list[Outcome]) -> Rule | None:
    policy = POLICY[operator]
    required = REQUIRED.get((operator, version), {})
    right = [one for one in cases if one.is_right and one.given.items() >= required.items()]
    types = [t for t in policy.types if any(t in one.inputs for one in right)]
    results = [t for t in policy.results if any(t in one.results for one in right)]
    used = [one for one in right if all(not k or k in types or k == INT64 for k in one.inputs)]
    if not used or not types:
        return None
    attributes: dict[str, set[str]] = defaultdict(set)
    for one in used:
        for name, value in one.attributes.items():
            allowed = policy.values.get(name)
            if name not in policy.without and (allowed is None or value in (*allowed, "*")):
                attributes[name].add(value)
    schema = onnx.defs.get_schema(operator, max(version, 1), "")
    is_variadic = schema.inputs[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    return Rule(
        operator,
        *opsets_of(operator, version),
        types,
        results,
        dict(attributes),
        required,
        policy.parameters,
        policy.clamped,
        min(
            policy.most_inputs,
            ANY_NUMBER if is_variadic else max(len(one.inputs) for one in used),
        ),
        policy.most_outputs,
    )


def schema_defaults(rule: Rule) -> dict[str, str]:
    schema = onnx.defs.get_schema(rule.operator, rule.first_opset, "")
    return {
        name: value_of(one.default_value, set())
        for name, one in schema.attributes.items()
        if one.default_value.name and one.type in (AttrType.INT, AttrType.STRING)
    }


def narrowed(rule: Rule, cases: list[Outcome]) -> Rule | None:
    """Takes away attribute values until no wrong case is allowed."""
    wrong = [one for one in cases if one.is_wrong and rule.allows(one)]
    right = [one for one in cases if one.is_right and rule.allows(one)]
    for one in wrong:
        for name, value in one.attributes.items():
            keeps = [other for other in right if other.attributes.get(name) == value]
            if value != "*" and not keeps:
                rule.attributes[name].discard(value)
    for one in [one for one in wrong if rule.allows(one)]:
        for name, value in one.given.items():
            if value != "*":
                rule.attributes[name].discard(value)
    # A node that leaves an attribute out has its default: it must not be one that was taken away.
    still = [one for one in cases if one.is_wrong and rule.allows(one)]
    defaults = schema_defaults(rule)
    lost = [
        n for n, values in rule.attributes.items() if n in defaults and defaults[n] not in values
    ]
    lost = [name for name in lost if "*" not in rule.attributes[name] and name not in rule.required]
    if not still and not lost:
        return rule
    print(f"defaults that are wrong: {lost}" if lost else "", end="")
    print(
        f"left out: {rule.operator} of opset {rule.first_opset}: "
        + "; ".join(f"{o.name}: {o.difference}" for o in still[:3])
    )
    return None


def merged(rules: list[Rule]) -> list[Rule]:
    """Rows of versions that follow each other and allow the same become one."""
    made: list[Rule] = []
    for rule in rules:
        last = made[-1] if made else None
        if last is not None and last.last_opset + 1 == rule.first_opset:
            as_last = replace(rule, first_opset=last.first_opset, last_opset=last.last_opset)
            if as_last == last:
                last.last_opset = rule.last_opset
                continue
        made.append(rule)
    return made


def table(found: list[Outcome]) -> list[Rule]:
    by_version: dict[tuple[str, int], list[Outcome]] = defaultdict(list)
    for one in found:
        by_version[one.operator, one.version].append(one)
    rules = []
    for operator in sorted(POLICY):
        versions = sorted(version for name, version in by_version if name == operator)
        some = []
        for version in versions:
            cases = by_version[operator, version]
            rule = rule_of(operator, version, cases)
            rule = rule and narrowed(rule, cases)
            if rule is not None:
                some.append(rule)
        if not some:
            print(f"not in the table: {operator}, versions {versions}")
        rules += merged(some)
    return rules


def written(rules: list[Rule], found: list[Outcome]) -> str:
    import openvino

    version = openvino.__version__.split("-")[0]
    right = sum(one.is_right for one in found)
    exceptions = [f'    {{"", "{name}", "", 0, "{why}"}},' for name, why in EXCEPTIONS.items()]
    for name, danger in DANGERS.items():
        bits = sum(1 << place for place in danger.inputs)
        exceptions.append(f'    {{"", "{name}", "{danger.types}", {bits:#x}, "{danger.reason}"}},')
    lines = [
        "// Made by tools/operator_table.py; do not edit.",
        f"// OpenVINO {version} with onnx {onnx.__version__}: of {len(found)} cases of one node",
        f"// {right} are right.",
        f'constexpr std::string_view kMadeWith = "OpenVINO {version}";',
        f'constexpr std::string_view kVersion = "openvino {version}, onnx {onnx.__version__}, 3";',
        "constexpr models::OperatorRule kRules[] = {",
        *[rule.text() for rule in rules],
        "};",
        "constexpr models::OperatorException kExceptions[] = {",
        *sorted(exceptions),
        "};",
        "",
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    warnings.filterwarnings("ignore")
    found = outcomes()
    rules = table(found)
    by_name: dict[str, list[Rule]] = defaultdict(list)
    for rule in rules:
        by_name[rule.operator].append(rule)
    lies = [
        one
        for one in found
        if one.is_wrong
        and any(
            rule.first_opset <= max(one.version, OLDEST_OPSET) <= rule.last_opset
            and rule.allows(one)
            for rule in by_name[one.operator]
        )
    ]
    for one in lies:
        print(f"allowed and wrong: {one.name}: {one.difference}")
    none = dangers_that_are_none()
    if none:
        print(f"dangers that are none: {', '.join(none)}")
    text = written(rules, found)
    if "--check" in arguments:
        is_same = TARGET.read_text() == text
        print("the table in the tree is " + ("this one" if is_same else "another"))
        return 0 if is_same and not lies and not none else 1
    TARGET.write_text(text)
    print(f"{TARGET.relative_to(ROOT)}: {len(rules)} rows of {len(by_name)} operators")
    return 1 if lies or none else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Read from the code of a forward pass what it does after the output projection.

An emptied block runs no attention, but must answer in the form that its caller expects. The last
statements of `forward` show that form. Nearly all families write them in one of a few ways; code
that is written in any other way is not guessed at.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from typing import Any

from torch import nn

from headcount.heads.anatomy import AfterProjection, Returns


def read_after_projection(attention: nn.Module, output: str) -> AfterProjection | None:
    """What `attention` does after its output projection, or None if its code is not plain.

    Args:
        attention: the module whose forward pass computes the attention.
        output: name of its output projection; empty if another module has the projection.
    """
    found = _read(type(attention).forward, output)
    if found is None or not all(_is_dropout(attention, name) for name in found.modules):
        return None
    return found


@cache
def _read(forward: Callable[..., Any], output: str) -> AfterProjection | None:
    body = _body(forward)
    if body is None or not isinstance(body[-1], ast.Return):
        return None
    modules: list[str] = []
    if output:
        start = _projection_statement(body, output)
        if start is None:
            return None
        modules = [name for name in reversed(_self_calls(body[start])) if name != output]
        for statement in body[start + 1 : -1]:
            module = _applied_module(statement)
            if module is not None:
                modules.append(module)
            elif not _changes_no_output(statement):
                return None
    returns = _returned(body)
    return None if returns is None else AfterProjection(returns, tuple(modules))


def _body(forward: Callable[..., Any]) -> list[ast.stmt] | None:
    try:
        source = textwrap.dedent(inspect.getsource(forward))
    except (OSError, TypeError):
        return None
    function = ast.parse(source).body[0]
    return function.body if isinstance(function, ast.FunctionDef) else None


def _self_calls(node: ast.AST) -> list[str]:
    return [
        call.func.attr
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "self"
    ]


def _projection_statement(body: list[ast.stmt], output: str) -> int | None:
    uses = [i for i, statement in enumerate(body) if output in _self_calls(statement)]
    # A projection called inside an if or a loop, or called twice, is not plain.
    if len(uses) != 1 or not isinstance(body[uses[0]], ast.Assign | ast.Return):
        return None
    return uses[0]


def _applied_module(statement: ast.stmt) -> str | None:
    """The name in `x = self.name(x)`."""
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
        call = statement.value
        calls = _self_calls(statement)
        if len(calls) == 1 and len(call.args) == 1 and isinstance(call.args[0], ast.Name):
            return calls[0]
    return None


def _changes_no_output(statement: ast.stmt) -> bool:
    """Whether this is a functional dropout, packs a tuple, or drops weights nobody asked for."""
    code = ast.unparse(statement)
    if isinstance(statement, ast.Assign):
        value = ast.unparse(statement.value)
        return code.startswith("outputs =") or value.startswith(
            ("nn.functional.dropout(", "F.dropout(", "torch.nn.functional.dropout(")
        )
    return (
        isinstance(statement, ast.If)
        and "output_attentions" in ast.unparse(statement.test)
        and all(
            ast.unparse(inner).startswith("outputs =") or ast.unparse(inner).endswith("= None")
            for inner in statement.body
        )
    )


def _returned(body: list[ast.stmt]) -> Returns | None:
    """The form of the last return; a variable is traced back to the tuple that it holds."""
    last = body[-1]
    value = last.value if isinstance(last, ast.Return) else None
    if isinstance(value, ast.Name):
        held = [
            node.value
            for statement in body
            for node in ast.walk(statement)
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == value.id
        ]
        tuples: list[ast.expr] = [
            h for h in held if isinstance(h, ast.Tuple | ast.IfExp | ast.BinOp)
        ]
        if not tuples:
            return "output"
        if len(held) == 1 and isinstance(held[0], ast.Tuple):
            value = held[0]
        elif all("output_attentions" in code for code in _conditions(body, value.id)):
            return "output[, weights]" if _shortest(tuples) == 1 else None
        else:
            return None
    if isinstance(value, ast.Tuple):
        return _form_of_tuple([ast.unparse(element) for element in value.elts])
    if isinstance(value, ast.BinOp) and isinstance(value.left, ast.Tuple):
        # `(output,) + outputs_of_the_attention[1:]`
        rest = ast.unparse(value.right).endswith("[1:]")
        return "output[, weights]" if rest and len(value.left.elts) == 1 else None
    return "output" if isinstance(value, ast.Call) else None


def _form_of_tuple(elements: list[str]) -> Returns | None:
    words = ("None", "weights", "prob", "scores")
    if len(elements) not in (2, 3) or not any(word in elements[1] for word in words):
        return None
    if len(elements) == 2:
        return "output, weights"
    return "output, weights, None" if elements[2] == "None" else None


def _shortest(values: list[ast.expr]) -> int:
    """Length of the shortest of these tuples: the answer when no weights are asked for."""
    tuples = [n for value in values for n in ast.walk(value) if isinstance(n, ast.Tuple)]
    outer = [n.orelse for n in values if isinstance(n, ast.IfExp)]
    plain = [n for n in (*values, *outer) if isinstance(n, ast.Tuple)]
    return min((len(n.elts) for n in plain or tuples), default=0)


def _conditions(body: list[ast.stmt], name: str) -> list[str]:
    """The conditions under which the tuple called `name` gets its second element."""
    found = []
    for statement in body:
        code = ast.unparse(statement)
        if isinstance(statement, ast.Assign) and code.startswith(f"{name} ="):
            if isinstance(statement.value, ast.IfExp):
                found.append(ast.unparse(statement.value.test))
        elif isinstance(statement, ast.If) and f"{name} =" in code:
            found.append(ast.unparse(statement.test))
    return found or ["unconditional"]


def _is_dropout(attention: nn.Module, name: str) -> bool:
    return isinstance(getattr(attention, name, None), nn.Dropout | nn.Identity)

# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The statements and expressions of Python that a function of an algorithm may have, and what is
told of the others.
"""

from __future__ import annotations

import ast

ALLOWED: tuple[type[ast.AST], ...] = (
    # statements
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
    ast.If,
    ast.For,
    ast.While,
    ast.Break,
    ast.Continue,
    ast.Pass,
    ast.Return,
    ast.Expr,
    # expressions
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Call,
    ast.keyword,
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Constant,
    ast.Tuple,
    # what these are made of
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)

_ALLOCATES = "an object, which would be allocated on every call"
_NOBODY = "nobody in the transport could catch it"
FORBIDDEN: dict[type[ast.AST], tuple[str, str]] = {
    ast.List: ("a list is " + _ALLOCATES, "use variables, a tuple, or state(...)"),
    ast.Dict: ("a dict is " + _ALLOCATES, "use variables, a tuple, or state(...)"),
    ast.Set: ("a set is " + _ALLOCATES, "use variables, a tuple, or state(...)"),
    ast.ListComp: ("a list is " + _ALLOCATES, "write a for loop"),
    ast.DictComp: ("a dict is " + _ALLOCATES, "write a for loop"),
    ast.SetComp: ("a set is " + _ALLOCATES, "write a for loop"),
    ast.GeneratorExp: ("a generator is " + _ALLOCATES, "write a for loop"),
    ast.JoinedStr: ("text is " + _ALLOCATES, "numbers only"),
    ast.Raise: ("a hook cannot raise: " + _NOBODY, "set a safe window and return"),
    ast.Assert: ("a hook cannot assert: " + _NOBODY, "put the check into a test"),
    ast.Try: ("a hook cannot use try: nothing in it raises", "test the values"),
    ast.With: ("with needs an object", ""),
    ast.Lambda: ("functions stand at the top of the file", "use def outside the class"),
    ast.FunctionDef: ("functions stand at the top of the file", "move it outside the class"),
    ast.ClassDef: ("classes stand at the top of the file", ""),
    ast.Import: ("imports stand at the top of the file", ""),
    ast.ImportFrom: ("imports stand at the top of the file", ""),
    ast.Global: ("flows share no variables", "keep what changes in state(...)"),
    ast.Nonlocal: ("flows share no variables", "keep what changes in state(...)"),
    ast.NamedExpr: ("assign in a statement of its own", ""),
    ast.Yield: ("a hook is an ordinary function", ""),
}

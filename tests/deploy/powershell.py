"""The pure functions of a PowerShell script, run without PowerShell.

PowerShell is in none of the registries that these tests may install from. Its grammar is (tree-sitter-powershell), so
a script can be parsed whole, and the little of the language that the decisions of deploy-gpu.ps1 use is run here:
assignments, if, foreach, return, calls of its own functions, hash tables, arrays, strings and the operators below.
Anything else raises `Beyond`, so that a decision cannot start to use what is not checked.

Faithful where it matters: names and comparisons ignore case, the right side of a comparison takes the type of the left,
a function's output of one value is that value and of none is nothing, `@( )` makes an array of either, arrays grow by
copy, a missing key of a hash table is an error (strict mode).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tree_sitter import Language, Node, Parser
from tree_sitter_powershell import language

NOTHING = object()  # no output at all: an array of it is empty, a variable of it is $null


class Beyond(Exception):
    """The script uses more of the language than is run here."""


class _Return(Exception):
    """A function returns; its value is output already."""


@dataclass
class Tree:
    """A node without the layers that only say how tightly operators bind."""

    kind: str
    text: str
    parts: list[Tree] = field(default_factory=list)

    def part(self, kind: str) -> Tree:
        """The first part of the kind."""
        return next(part for part in self.parts if part.kind == kind)


def faults(source: str) -> list[str]:
    """What the grammar does not accept: line and text."""
    found: list[str] = []

    def look(node: Node) -> None:
        if node.type == "ERROR" or node.is_missing:
            found.append(f"line {node.start_point[0] + 1}: {(node.text or b'').decode()[:80]!r}")
        for child in node.children:
            look(child)

    look(_parse(source))
    return found


class Script:
    """The functions of a script and the texts that it assigns at its top."""

    def __init__(self, source: str) -> None:
        self.functions: dict[str, Tree] = {}
        self.constants: dict[str, Any] = {}
        statements = _simplified(_parse(source))
        for statement in _every(statements, "function_statement"):
            self.functions[statement.part("function_name").text.lower()] = statement
        for statement in statements.part("statement_list").parts:
            if statement.kind == "assignment_expression" and statement.parts[2].kind == "verbatim_string_characters":
                self.constants[statement.parts[0].text.lstrip("$").lower()] = _verbatim(statement.parts[2].text)

    def call(self, name: str, *arguments: Any) -> Any:
        """What the function puts out: nothing, one value, or a list of them."""
        function = self.functions[name.lower()]
        parameters: list[Tree] = []
        if any(part.kind == "function_parameter_declaration" for part in function.parts):
            parameters = list(_every(function.part("function_parameter_declaration"), "variable"))
        if len(parameters) != len(arguments):
            raise Beyond(f"{name} takes {len(parameters)} arguments and got {len(arguments)}")
        names = [_name(parameter) for parameter in parameters]
        frame = _Frame(self, dict(zip(names, arguments, strict=True)))
        body = [part for part in function.parts if part.kind == "statement_list"]
        try:
            for statements in body:
                frame.run(statements)
        except _Return:
            pass
        return frame.output[0] if len(frame.output) == 1 else (frame.output or NOTHING)


class _Frame:
    """One call: its variables and its output."""

    def __init__(self, script: Script, variables: dict[str, Any]) -> None:
        self._script, self._variables = script, variables
        self.output: list[Any] = []

    def run(self, statements: Tree) -> None:
        for statement in statements.parts:
            match statement.kind:
                case "if_statement":
                    self._if(statement)
                case "foreach_statement":
                    self._foreach(statement)
                case "assignment_expression":
                    self._assign(statement)
                case "flow_control_statement":
                    for value in statement.parts[1:]:
                        self._put_out(self.value(value))
                    raise _Return
                case ";":
                    pass
                case _:
                    self._put_out(self.value(statement))

    def value(self, tree: Tree) -> Any:
        if tree.kind not in _VALUES:
            raise Beyond(f"{tree.kind}: {tree.text[:60]}")
        return _VALUES[tree.kind](self, tree)

    def array(self, tree: Tree) -> list[Any]:
        return [one for part in tree.parts if part.kind == "statement_list" for one in self._gathered(part)]

    def hash_table(self, tree: Tree) -> dict[str, Any]:
        entries = tree.part("hash_literal_body").parts if len(tree.parts) > 2 else []
        return {entry.parts[0].text.lower(): _plain(self.value(entry.parts[2])) for entry in entries}

    def _if(self, tree: Tree) -> None:
        clauses = [tree, *(one for part in tree.parts if part.kind == "elseif_clauses" for one in part.parts)]
        for clause in clauses:
            if _truth(self.value(clause.parts[2])):
                self._block(clause.part("statement_block"))
                return
        for part in tree.parts:
            if part.kind == "else_clause":
                self._block(part.part("statement_block"))

    def _foreach(self, tree: Tree) -> None:
        for value in _many(_plain(self.value(tree.parts[4]))):
            self._variables[_name(tree.parts[2])] = value
            self._block(tree.part("statement_block"))

    def _block(self, tree: Tree) -> None:
        for part in tree.parts:
            if part.kind == "statement_list":
                self.run(part)

    def _assign(self, tree: Tree) -> None:
        target, operator, value = tree.parts[0], tree.parts[1].text, _plain(self.value(tree.parts[2]))
        if operator == "+=":
            value = _plus(self.value(target), value)
        elif operator != "=":
            raise Beyond(operator)
        if target.kind == "variable":
            self._variables[_name(target)] = value
        elif target.kind == "member_access":
            self.value(target.parts[0])[target.parts[2].text.lower()] = value
        else:
            raise Beyond(target.text)

    def read(self, name: str) -> Any:
        constants = {"null": None, "true": True, "false": False, **self._script.constants}
        if name not in self._variables and name not in constants:
            raise KeyError(f"${name} is not set")
        return self._variables[name] if name in self._variables else constants[name]

    def expanded(self, text: str) -> str:
        if "`" in text or "$(" in text:
            raise Beyond(text)
        names = r"\$\{(\w+)\}|\$(\w+)"
        if re.search(r"\$\w+:", text):
            raise Beyond(f"{text}: a colon after a name means a scope, write ${{name}}:")
        return re.sub(names, lambda match: _text(self.read((match[1] or match[2]).lower())), text)

    def _gathered(self, statements: Tree) -> list[Any]:
        inner = _Frame(self._script, self._variables)
        inner.run(statements)
        return inner.output

    def _put_out(self, value: Any) -> None:
        if value is not NOTHING:
            self.output += value if isinstance(value, list) else [value]

    def cast(self, tree: Tree) -> Any:
        if tree.parts[0].text.lower() != "[int]":
            raise Beyond(tree.text)
        return int(self.value(tree.parts[1]))

    def unary(self, tree: Tree) -> Any:
        if tree.parts[0].text == "-":
            return -self.value(tree.parts[1])
        if tree.parts[0].text.lower() == "-not":
            return not _truth(self.value(tree.parts[1]))
        raise Beyond(tree.text)

    def binary(self, tree: Tree) -> Any:
        left, operator, right = tree.parts[0], tree.parts[1].text.lower(), tree.parts[2]
        if operator == "-and":
            return _truth(self.value(left)) and _truth(self.value(right))
        if operator == "-or":
            return _truth(self.value(left)) or _truth(self.value(right))
        if operator not in _OPERATORS:
            raise Beyond(operator)
        return _OPERATORS[operator](_plain(self.value(left)), _plain(self.value(right)))

    def command(self, tree: Tree) -> Any:
        name = tree.part("command_name").text
        if name.lower() not in self._script.functions:
            raise Beyond(f"the command {name}")
        elements = tree.part("command_elements") if any(one.kind == "command_elements" for one in tree.parts) else None
        arguments = [_plain(self.value(one)) for one in (elements.parts if elements else [])]
        return self._script.call(name, *arguments)


_WRAPPERS = {"pipeline", "pipeline_chain", "array_literal_expression", "unary_expression", "string_literal"}
_WRAPPERS |= {"bitwise_expression", "multiplicative_expression", "format_expression", "range_expression"}
_WRAPPERS |= {"logical_expression", "comparison_expression", "additive_expression", "left_assignment_expression"}
_WRAPPERS |= {"integer_literal", "expression_with_unary_operator", "script_block", "script_block_body"}
_KEPT_ALONE = {"statement_list", "command_elements"}
_NOISE = {"comment", "command_argument_sep"}


def _parse(source: str) -> Node:
    return Parser(Language(language())).parse(source.encode()).root_node


def _simplified(node: Node) -> Tree:
    children = [child for child in node.children if child.type not in _NOISE]
    if len(children) == 1 and node.type in _WRAPPERS:
        return _simplified(children[0])
    return Tree(node.type, (node.text or b"").decode(), [_simplified(child) for child in children])


def _every(tree: Tree, kind: str) -> Iterator[Tree]:
    if tree.kind == kind:
        yield tree
    for part in tree.parts:
        yield from _every(part, kind)


def _name(variable: Tree) -> str:
    return variable.text.strip("${}").lower()


def _verbatim(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _plain(value: Any) -> Any:
    return None if value is NOTHING else value


def _many(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _truth(value: Any) -> bool:
    value = _plain(value)
    if isinstance(value, list) and len(value) == 1:
        return _truth(value[0])
    return True if isinstance(value, dict) else bool(value)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(_text(one) for one in value)
    return "" if value is None else str(value)


def _member(owner: Any, name: str) -> Any:
    if isinstance(owner, list) and name == "count":
        return len(owner)
    if not isinstance(owner, dict):
        raise Beyond(f".{name} of {owner!r}")
    return owner[name]


def _element(owner: Any, index: int) -> Any:
    values = owner if isinstance(owner, (list, str)) else [owner]
    return values[index] if -len(values) <= index < len(values) else None


def _plus(left: Any, right: Any) -> Any:
    if isinstance(left, list):
        return [*left, *(right if isinstance(right, list) else [right])]
    return left + (_text(right) if isinstance(left, str) else int(right))


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, str):
        return left.lower() == _text(right).lower()
    return bool(left == (int(right) if isinstance(left, int) else right))


def _matches(left: Any, pattern: str) -> bool:
    if isinstance(left, list):
        raise Beyond("-match filters an array")
    return re.search(pattern, _text(left), re.IGNORECASE) is not None


def _holds(many: Any, value: Any) -> bool:
    return any(_same(one, value) for one in _many(many))


def _split(text: Any, pattern: str) -> list[str]:
    if isinstance(text, list):
        raise Beyond("-split of an array")
    return re.split(pattern, _text(text), flags=re.IGNORECASE)


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "-eq": _same,
    "-ne": lambda left, right: not _same(left, right),
    "-gt": lambda left, right: left > int(right),
    "-ge": lambda left, right: left >= int(right),
    "-lt": lambda left, right: left < int(right),
    "-match": _matches,
    "-notmatch": lambda left, right: not _matches(left, right),
    "-contains": _holds,
    "-notcontains": lambda left, right: not _holds(left, right),
    "-split": _split,
    "-join": lambda many, separator: separator.join(_text(one) for one in _many(many)),
    "+": _plus,
}
_VALUES: dict[str, Callable[[_Frame, Tree], Any]] = {
    "variable": lambda frame, tree: frame.read(_name(tree)),
    "verbatim_string_characters": lambda _, tree: _verbatim(tree.text),
    "expandable_string_literal": lambda frame, tree: frame.expanded(tree.text[1:-1]),
    "decimal_integer_literal": lambda _, tree: int(tree.text),
    "parenthesized_expression": lambda frame, tree: _plain(frame.value(tree.parts[1])),
    "array_expression": _Frame.array,
    "hash_literal_expression": _Frame.hash_table,
    "member_access": lambda frame, tree: _member(frame.value(tree.parts[0]), tree.parts[2].text.lower()),
    "element_access": lambda frame, tree: _element(frame.value(tree.parts[0]), frame.value(tree.parts[2])),
    "cast_expression": _Frame.cast,
    "expression_with_unary_operator": _Frame.unary,
    "comparison_expression": _Frame.binary,
    "additive_expression": _Frame.binary,
    "logical_expression": _Frame.binary,
    "command": _Frame.command,
}

"""What C++ and Python include of the description of calls (``calls``): structs, schemas, bindings."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from string import ascii_lowercase

from wheel_builder.tables.calls import CALLS, Call, FieldType, Maker, TensorArgument, ValueArgument

HEAD = f"Generated from {CALLS} by wheel_builder/tables/generated.py: change it there."
# Of a value: in C, in the operator's schema, in the function behind the operator.
TYPES = {
    "int64": ("int64_t", "int", "std::int64_t"),
    "float": ("float", "float", "double"),
    "double": ("double", "float", "double"),
    "bool": ("int32_t", "bool", "bool"),
    "text": ("const char*", "str", "const std::string&"),
}


def cpp_structs(structs: Mapping[str, Mapping[str, FieldType]]) -> str:
    """The arguments of kernels."""
    return _file(
        f"struct {name} {{\n{_lines(f'  {_declared(type_, field)};' for field, type_ in fields.items())}}};"
        for name, fields in structs.items()
    )


def c_calls(calls: Mapping[str, Call]) -> str:
    """The structures of the C interface."""
    return _file(map(_c_struct, calls.items()), comment=f"/* {HEAD} */")


def cpp_tensors(calls: Mapping[str, Call]) -> str:
    """``tensors_of`` each call: what the checks go through."""
    return _file(_tensors(name, call) for name, call in calls.items() if call.tensors)


def cpp_bindings(calls: Mapping[str, Call], makers: Mapping[str, Maker]) -> str:
    """The operators' schemas, and the functions that make the C interface's calls of their arguments."""
    operators = [_operator(name, call) for name, call in calls.items()]
    operators += [_making(name, maker, calls[maker.call]) for name, maker in makers.items()]
    return _file(f"{_schema(each)}\n\n{_function(each)}" for each in operators)


def cpp_expected(expected: Mapping[str, str]) -> str:
    """What errors say is expected of an argument."""
    return _file(
        f'inline constexpr const char* kExpected{name.title().replace("_", "")} = "{text}";'
        for name, text in expected.items()
    )


def python_expected(expected: Mapping[str, str]) -> str:
    """The same for Python."""
    lines = [f'{name.upper()} = "{text}"' for name, text in expected.items()]
    return _lines(['"""What errors say is expected of an argument."""', "", f"# {HEAD}", *lines])


def _file(parts: Iterable[str], comment: str = f"// {HEAD}") -> str:
    return "\n\n".join([comment, *parts]) + "\n"


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _declared(type_: FieldType, field: str) -> str:
    const, star = "const " * type_.const, "*" * type_.pointer
    return f"{const}{type_.name}{star} {field}{f'[{type_.count}]' if type_.count else ''}"


def _c_struct(named: tuple[str, Call]) -> str:
    name, call = named
    fields = [f"  fa_tensor {each.name};" for each in call.tensors]
    fields += [f"  {TYPES[each.type][0]} {each.name};" for each in call.values]
    if call.tensors:
        fields.append("  void* stream; /* hipStream_t of q's device; NULL is the default stream */")
    return f"typedef struct fa_{name}_call {{\n{_lines(fields)}}} fa_{name}_call;"


def _tensors(name: str, call: Call) -> str:
    rows = (
        f'      {{{{"{each.name}", call.{each.name}}}, Holds::{each.holds}, '
        f"Contiguous::{each.contiguous or 'any'}, {str(each.optional).lower()}}},"
        for each in call.tensors
    )
    kind = f"std::array<Described, {len(call.tensors)}>"
    return (
        f"inline {kind} tensors_of(const fa_{name}_call& call) {{\n  return {{{{\n{_lines(rows)}  }}}};\n}}"
    )


@dataclass(frozen=True)
class _Operator:
    """``end``: the last lines of its function, which has filled the structure of ``call``."""

    name: str
    call: str
    tensors: tuple[TensorArgument, ...]
    values: tuple[ValueArgument, ...]
    of_call: tuple[ValueArgument, ...]  # those of the values that the structure has
    schema: str  # of the results
    returned: str  # the results' type
    end: tuple[str, ...]


def _operator(name: str, call: Call) -> _Operator:
    schema, returned, end = "()", "void", f"run(&fa_{name}, call);"
    if not call.tensors:
        schema, returned, end = "(str path, int splits, str reason)", "Planned", "return answered(call);"
    return _Operator(name, name, call.tensors, call.values, call.values, schema, returned, (end,))


def _making(name: str, maker: Maker, call: Call) -> _Operator:
    given = ", ".join(["call", "q", *(each.name for each in maker.values)])
    memory = f"const auto memory = {name}_memory({given});"
    end = (memory, f"run(&fa_{maker.call}, call);", "return memory.results;")
    values = (*call.values, *maker.values)
    schema = f"({', '.join(f'Tensor {each}' for each in maker.makes)})"
    returned = f"std::tuple<{', '.join(['Tensor'] * len(maker.makes))}>"
    return _Operator(name, maker.call, maker.given(call), values, call.values, schema, returned, end)


def _schema(operator: _Operator) -> str:
    letters = iter(ascii_lowercase)
    arguments = [_tensor_schema(each, letters) for each in operator.tensors]
    arguments += [f"{_schema_type(each)} {each.name}" for each in operator.values]
    text = _lines(f'    "{each}, "' for each in arguments[:-1])
    begin, end = f'    "{operator.name}("\n', f'    "{arguments[-1]}) -> {operator.schema}"'
    return f"constexpr const char* {_constant(operator.name)} =\n{begin}{text}{end};"


def _constant(name: str) -> str:
    return f"k{name.title().replace('_', '')}Schema"


def _tensor_schema(each: TensorArgument, letters: Iterator[str]) -> str:
    alias = f"({next(letters)}!)" if each.written else ""
    return f"Tensor{alias}{'?' * each.optional} {each.name}"


def _schema_type(each: ValueArgument) -> str:
    return "SymInt" if each.traced else TYPES[each.type][1]


def _function(operator: _Operator) -> str:
    kinds = [f"{_tensor_type(each)} {each.name}" for each in operator.tensors]
    kinds += [f"{TYPES[each.type][2]} {each.name}" for each in operator.values]
    body = [f'  call.{each.name} = describe{"_written" * each.written}({each.name}, "{each.name}");'
            for each in operator.tensors]  # fmt: skip
    body += [f"  call.{each.name} = {_converted(each)};" for each in operator.of_call]
    if operator.tensors:
        body.append("  call.stream = stream_of(q);")
    body += [f"  {each}" for each in operator.end]
    head = f"{operator.returned} {operator.name}({', '.join(kinds)})"
    return f"{head} {{\n  fa_{operator.call}_call call{{}};\n{_lines(body)}}}"


def _tensor_type(each: TensorArgument) -> str:
    return "const std::optional<Tensor>&" if each.optional else "const Tensor&"


def _converted(each: ValueArgument) -> str:
    conversions = {"float": f"static_cast<float>({each.name})", "text": f"{each.name}.c_str()"}
    return conversions.get(each.type, each.name)

"""A stretch as one C function: addresses, products by BLAS, calls of kernels through a table.

In: a ``Stretch`` of a program. Out: a ``CFunction``, and what each entry of its table is. Nothing
that differs between processes (addresses) is in the text, so that the disk cache serves it.

    long NAME(void **table, char *arena, void *outer0, ..., i64 size0, ..., double scalar0, ...)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from anyshape.ir.code import CFunction, CType, Reference
from anyshape.ir.dtypes import DType, float64
from anyshape.ir.loops import Kernel, PointerParam, ScalarParam
from anyshape.ir.program import Buffer, BufferRef, Call, Launch, Program, Stretch
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.symbolic import Dim, Expr, Symbol, to_c

NATIVE_PRELUDE = """
typedef void gemm_f(const char *, const char *, const int *, const int *, const int *, const void *,
                    const void *, const int *, const void *, const int *, const void *, void *, const int *);

/* Row-major c[m, n] = a[m, k] b[k, n] + beta c, by a column-major BLAS. */
static long anyshape_gemm(void *gemm, int is_double, int a_transposed, int b_transposed, long m, long n,
                          long k, const void *a, long lda, const void *b, long ldb, void *c, double beta)
{
    if ((m | n | k | lda | ldb) >> 31) return 1;
    int m_ = (int)m, n_ = (int)n, k_ = (int)k, ldc = n > 1 ? (int)n : 1;
    long least_a = a_transposed ? m : k, least_b = b_transposed ? k : n;
    int lda_ = (int)(lda > least_a ? lda : least_a), ldb_ = (int)(ldb > least_b ? ldb : least_b);
    float one = 1.0f, beta_ = (float)beta;
    double one_double = 1.0;
    if (m == 0 || n == 0) return 0;
    if (lda_ < 1) lda_ = 1;
    if (ldb_ < 1) ldb_ = 1;
    ((gemm_f *)gemm)(b_transposed ? "T" : "N", a_transposed ? "T" : "N", &n_, &m_, &k_,
                     is_double ? (void *)&one_double : (void *)&one, b, &ldb_, a, &lda_,
                     is_double ? (void *)&beta : (void *)&beta_, c, &ldc);
    return 0;
}

static void anyshape_fill_rows(char *c, const char *row, long rows, long bytes)
{
    for (long i = 0; i < rows; i++) __builtin_memcpy(c + i * bytes, row, bytes);
}
"""


def emit_stretch(
    stretch: Stretch, program: Program, kernel_names: Mapping[Kernel, str], name: str
) -> tuple[CFunction, tuple[Reference, ...]]:
    """Prints the stretch as C, and says what the entries of its table are."""
    return _Printer(stretch, program.buffers, kernel_names).emit(name)


@dataclass(slots=True, eq=False)
class _Printer:
    stretch: Stretch
    buffers: Mapping[str, Buffer]
    kernel_names: Mapping[Kernel, str]
    lines: list[str] = field(default_factory=list)
    table: dict[Reference, int] = field(default_factory=dict)
    pointers: dict[str, str] = field(default_factory=dict)
    symbols: dict[Symbol, str] = field(default_factory=dict)
    scalars: dict[Scalar | ScalarInput, str] = field(default_factory=dict)
    sizes: dict[str, str] = field(default_factory=dict)

    def emit(self, name: str) -> tuple[CFunction, tuple[Reference, ...]]:
        parameters = ["void **table", "char *arena"]
        types: list[CType] = ["pointer", "pointer"]
        for index, buffer in enumerate(self.stretch.outer):
            if self.buffers[buffer].role == "constant":
                self.pointers[buffer] = f"(char *)table[{self._entry(('constant', buffer))}]"
            else:
                self.pointers[buffer] = f"o{index}"
                parameters.append(f"char *o{index}")
                types.append("pointer")
        for index, symbol in enumerate(self.stretch.sizes):
            self.symbols[symbol] = f"s{index}"
            parameters.append(f"long s{index}")
            types.append("int64")
        for index, scalar in enumerate(self.stretch.scalars):
            self.scalars[scalar] = f"f{index}"  # type: ignore[index]
            is_float = scalar.kind == "float"  # type: ignore[union-attr]
            parameters.append(f"{'double' if is_float else 'long'} f{index}")
            types.append("double" if is_float else "int64")
        for buffer, offset in self.stretch.inner.items():
            self.pointers[buffer] = self._at("arena", offset)
        for step in self.stretch.steps:
            self._step(step)
        body = "\n".join(f"    {line}" for line in self.lines)
        text = f"long {name}({', '.join(parameters)})\n{{\n    long status = 0;\n{body}\n    return status;\n}}\n"
        return CFunction(text, tuple(types), returns_status=True), tuple(self.table)

    def _step(self, step: object) -> None:
        match step:
            case Launch():
                self._launch(step)
            case Call(kind="view"):
                self._view(step)
            case Call(kind="check"):
                self._check(step)
            case Call():
                self._product(step)
            case _:
                raise TypeError(f"{step} is not native")

    def _launch(self, step: Launch) -> None:
        entry = self._entry(("kernel", self.kernel_names[step.kernel]))
        types, args = [], []
        for param, arg in zip(step.kernel.params, step.args, strict=True):
            if isinstance(param, PointerParam):
                assert isinstance(arg, BufferRef)
                types.append("void *")
                size_bytes = self.buffers[arg.name].dtype.size_bytes
                offset = step.offsets.get(param.name, 0)
                args.append(self._at(self.pointers[arg.name], offset * size_bytes))
            else:
                is_float = isinstance(param, ScalarParam) and param.dtype.is_floating
                types.append("double" if is_float else "long")
                args.append(self._number(arg))
        prototype = f"void (*)({', '.join(types)})"
        self.lines.append(f"(({prototype})table[{entry}])({', '.join(args)});")

    def _view(self, step: Call) -> None:
        base, _, _, *rest = step.args
        assert isinstance(base, BufferRef)
        offset = rest[0] if rest else 0
        size_bytes = self.buffers[base.name].dtype.size_bytes
        assert isinstance(offset, (int, Expr))
        self.pointers[step.outputs[0]] = self._at(self.pointers[base.name], offset * size_bytes)

    def _check(self, step: Call) -> None:
        (condition,) = step.args
        assert isinstance(condition, BufferRef)
        self.lines.append(f"if (*{self.pointers[condition.name]}) return 2;")

    def _product(self, step: Call) -> None:
        left, right, *bias = (arg for arg in step.args if isinstance(arg, BufferRef))
        a, b = self.buffers[left.name], self.buffers[right.name]
        result = self.buffers[step.outputs[0]]
        linear = step.function.endswith("linear")
        rows, inner = _product_of(a.shape[:-1]), a.shape[-1]
        columns = b.shape[0] if linear else b.shape[1]
        a_transposed, lda = (False, inner) if linear else _layout(a)
        b_transposed, ldb = (True, inner) if linear else _layout(b)
        c = self.pointers[result.name]
        if bias:
            row = self.pointers[bias[0].name]
            row_bytes = self._size(columns * result.dtype.size_bytes)
            self.lines.append(f"anyshape_fill_rows({c}, {row}, {self._size(rows)}, {row_bytes});")
        gemm = self._entry(("library", _gemm(result.dtype)))
        numbers = ", ".join(map(self._size, (rows, columns, inner)))
        self.lines.append(
            f"status |= anyshape_gemm(table[{gemm}], {int(result.dtype is float64)}, {int(a_transposed)}, "
            f"{int(b_transposed)}, {numbers}, {self.pointers[left.name]}, {self._size(lda)}, "
            f"{self.pointers[right.name]}, {self._size(ldb)}, {c}, {'1.0' if bias else '0.0'});"
        )

    def _entry(self, entry: Reference) -> int:
        return self.table.setdefault(entry, len(self.table))

    def _at(self, pointer: str, offset: Dim) -> str:
        return (
            pointer
            if isinstance(offset, int) and offset == 0
            else f"({pointer} + {self._size(offset)})"
        )

    def _number(self, number: object) -> str:
        if isinstance(number, (Scalar, ScalarInput)):
            return self.scalars[number]
        if isinstance(number, float):
            return _c_float(number)
        assert isinstance(number, (int, Expr))
        return self._size(number)

    def _size(self, dim: Dim) -> str:
        """The size as C; what takes computing is computed once."""
        if isinstance(dim, int):
            return f"{int(dim)}L"
        text = to_c(dim, lambda symbol: self.symbols[symbol])
        if text.isidentifier():
            return text
        if text not in self.sizes:
            self.sizes[text] = f"n{len(self.sizes)}"
            self.lines.append(f"const long {self.sizes[text]} = {text};")
        return self.sizes[text]


def _product_of(dims: tuple[Dim, ...]) -> Dim:
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result


def _layout(buffer: Buffer) -> tuple[bool, Dim]:
    """(transposed, leading dimension) of a matrix with one stride of 1."""
    rows, columns = buffer.strides
    if isinstance(columns, int) and columns == 1:
        return False, rows
    return True, columns


def _gemm(dtype: DType) -> str:
    return "dgemm_" if dtype is float64 else "sgemm_"


def _c_float(number: float) -> str:
    if math.isfinite(number):
        return number.hex()
    return (
        '__builtin_nan("")' if math.isnan(number) else f"{'-' if number < 0 else ''}__builtin_inf()"
    )

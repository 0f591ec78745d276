"""The C library's functions: the same result for the same argument, wherever in a fiber it stands.

In: nothing. Out: texts of C that declare each function, and the names that need them. glibc has a
function for one number and others for vectors of several widths, whose results differ in the last
bit. gcc takes the widest for most of a fiber, and narrower ones for what is left. So all but the
widest are defined here, next to the kernels: the widest, of the argument repeated. Source: the
vector function ABI of x86-64 (names and registers). Where glibc has no vectors of the machine's
width, or another compiler is used, only the function for one number is called.
"""

from __future__ import annotations

from collections.abc import Mapping

from anyshape.nouns import frozen

UNARY = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos"),
    *("atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc"),
)
BINARY = ("pow", "atan2", "hypot")
SCALAR = ("lgamma", "fmod", "nextafter")
"""Functions in double precision; in single precision an f is behind the name."""
PRECISIONS = {"f64": "", "f32": "f"}
BYTES = {"f64": 8, "f32": 4}

DECLARATIONS = """
#if defined(__x86_64__) && defined(__OPTIMIZE__) && __has_include(<features.h>)
#include <features.h>
#endif
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#if (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 35) && (defined(__AVX2__) || !defined(__AVX__))
#define AS_SIMD __attribute__((simd("notinbranch"), const, nothrow))
#define AS_VECTOR_LIBRARY 1
#endif
#endif
#ifndef AS_SIMD
#define AS_SIMD __attribute__((const, nothrow))
#endif
f64 lgamma(f64); f32 lgammaf(f32);
f64 fmod(f64, f64); f32 fmodf(f32, f32); f64 nextafter(f64, f64); f32 nextafterf(f32, f32);
"""


@frozen
class Variant:
    """One width of glibc's vector functions.

    ``letter`` names it. ``repeated`` has the instruction that fills its register ``{n}`` from the
    start of that register: from one number of a type, or from a narrower variant. ``left`` is what
    leaves the register as code without wide vectors expects it.
    """

    letter: str
    size: int  # bytes
    repeated: Mapping[str, str]
    left: str = ""

    def name(self, function: str, kind: str, arguments: int) -> str:
        """Of the function, as the ABI spells it."""
        lanes = self.size // BYTES[kind]
        return f"_ZGV{self.letter}N{lanes}{'v' * arguments}_{function}{PRECISIONS[kind]}"


SSE = Variant(
    "b", 16, {"f32": "shufps $0, %xmm{n}, %xmm{n}", "f64": "unpcklpd %xmm{n}, %xmm{n}"}
)  # fmt: skip
AVX2 = Variant(
    "d", 32,
    {
        "f32": "vbroadcastss %xmm{n}, %ymm{n}", "f64": "vbroadcastsd %xmm{n}, %ymm{n}",
        "b": "vinsertf128 $1, %xmm{n}, %ymm{n}, %ymm{n}",
    },
    "vzeroupper",
)  # fmt: skip
AVX512 = Variant(
    "e", 64,
    {
        "f32": "vbroadcastss %xmm{n}, %zmm{n}", "f64": "vbroadcastsd %xmm{n}, %zmm{n}",
        "b": "vshuff32x4 $0, %zmm{n}, %zmm{n}, %zmm{n}",
        "d": "vinsertf64x4 $1, %ymm{n}, %zmm{n}, %zmm{n}",
    },
    "vzeroupper",
)  # fmt: skip
MACHINES = {
    "#if defined(__AVX512F__)": (AVX512, (AVX2, SSE)),
    "#elif defined(__AVX2__)": (AVX2, (SSE,)),
    "#else": (SSE, ()),
}
"""The widest variant of each machine, and the narrower ones that gcc may call there."""


def texts_of_functions() -> dict[str, tuple[str, ...]]:
    """Each text, in order, and the calls that need it."""
    found = {
        DECLARATIONS: tuple(f"{name}{behind}(" for name in SCALAR for behind in PRECISIONS.values())
    }
    for arguments, names in ((1, UNARY), (2, BINARY)):
        for name in names:
            for kind, behind in PRECISIONS.items():
                found[_text(name, kind, arguments)] = (f"{name}{behind}(",)
    return found


def _text(function: str, kind: str, arguments: int) -> str:
    """Its declaration, and all but its widest variant."""
    one = f"{function}{PRECISIONS[kind]}"
    lines = [f"AS_SIMD {kind} {one}({', '.join([kind] * arguments)});", "#ifdef AS_VECTOR_LIBRARY"]
    for condition, (widest, narrower) in MACHINES.items():
        called = widest.name(function, kind, arguments)
        lines += [condition, _defined(one, called, widest.repeated[kind], arguments, widest.left)]
        for variant in narrower:
            name, repeated = (
                variant.name(function, kind, arguments),
                widest.repeated[variant.letter],
            )
            # gcc takes vectors of 32 bytes for clean up to 32, and those of 16 up to 16.
            left = widest.left if variant is SSE else ""
            lines.append(_defined(name, called, repeated, arguments, left))
    return "\n".join((*lines, "#endif", "#endif"))


def _defined(name: str, called: str, repeated: str, arguments: int, left: str) -> str:
    """A function of this object alone, which calls another one with its arguments repeated."""
    instructions = [
        *(".pushsection .text", f".type {name}, @function", f"{name}:", ".cfi_startproc"),
        *(repeated.format(n=n) for n in range(arguments)),
        *(
            "subq $8, %rsp",
            ".cfi_adjust_cfa_offset 8",
            f"call {called}@PLT",
            *([left] * bool(left)),
        ),
        *("addq $8, %rsp", ".cfi_adjust_cfa_offset -8", "ret", ".cfi_endproc"),
        *(f".size {name}, .-{name}", ".popsection"),
    ]
    return "__asm__({});".format(" ".join(f'"{each}\\n"' for each in instructions))

"""Values: stack, locals, containers, operators, formatting, unpacking."""

from __future__ import annotations

import sys


def case_arithmetic():
    a, b = 17, 5
    return [
        a + b,
        a - b,
        a * b,
        a / b,
        a // b,
        a % b,
        a**b,
        a << b,
        a >> 1,
        a & b,
        a | b,
        a ^ b,
        -a,
        +a,
        ~a,
        not a,
    ]


def case_inplace():
    a = 7
    a += 3
    a -= 1
    a *= 4
    a //= 5
    a **= 2
    a %= 31
    a <<= 3
    a >>= 1
    a |= 64
    a &= 127
    a ^= 5
    b = 9.0
    b /= 4
    l = [1]
    m = l
    l += (2, 3)
    l *= 2
    s = {1}
    s |= {2}
    s -= {1}
    s ^= {5}
    s &= {5, 2}
    return a, b, l is m, l, s


def case_compare():
    a, b = 3, 4.0
    chained = 1 < a <= b != 7 > 2 >= 2 == 2
    return [
        a < b,
        a <= b,
        a == b,
        a != b,
        a > b,
        a >= b,
        chained,
        a is b,
        a is not b,
        3 in [1, 3],
        4 not in (1, 4),
    ]


def case_containers():
    a = [1, 2]
    d = {"x": 1, **{"y": 2}, "z": a}
    return (
        [*a, 3, *range(2)],
        (*a, *"ab"),
        {1, *a, 3},
        d,
        {**d, "x": 0},
        [],
        {},
        (),
        {7},
        a[0:1],
        a[::-1],
    )


def case_build_map():
    k, v = "a", 2
    return {k: v, v: k, None: [k]}, {"a": k, "b": v, "c": 0}


def case_long_build():
    return [1, 2, 3, 4, 5, 6, 7], (1, "a", 2.0, None, True), {3, 1, 2}


def case_slices():
    l = list(range(10))
    i, j = 2, 7
    before = l[i:j], l[i:], l[:j], l[i:j:2], l[::3]
    l[i:j] = "xyz"
    l[0:1] = []
    del l[1:3]
    del l[-1]
    return before, l, "abcdef"[i:4], (1, 2, 3)[1:]


def case_unpack():
    a, b = 1, 2
    a, b = b, a
    (c, (d, *e)), *f = (3, [4, 5, 6]), 7, 8
    *g, h = "xyz"
    [i, j] = iter([1, 2])
    k, *l, m = range(5)
    return a, b, c, d, e, f, g, h, i, j, k, l, m


def case_unpack_too_many():
    a, b = [1, 2, 3]


def case_unpack_too_few():
    a, b, c = (x for x in "ab")


def case_unpack_dict_too_few():
    a, b, c = {1: 2}


def case_unpack_not_iterable():
    a, b = 3


def case_unpack_star_too_few():
    a, *b, c, d = "ab"


def case_unpack_star_not_iterable():
    a, *b = 3


def case_rotate():
    a, b, c, d = 1, 2, 3, 4
    a, b, c, d = d, c, b, a
    a, b, c = c, a, b
    return a, b, c, d


def case_fstrings():
    x, y, w = 3.14159, "hé", 8
    return [
        f"{x:.2f}|{x!r:>10}|{y!s:^{w}}|{y!a}|{w:05d}|{{}}{x}",
        f"{x=}|{y=!s}|{w:{'>'}{w}}",
        f"{f'{y}{w}':*<8}",
        "%s %d %5.1f %r" % (y, w, x, y),
        "{} {0}".replace("0", "1").format(1, 2),
        "{a[0]} {b.real}".format(a=[1], b=2),
        f"{'nested'!r}",
        f"",
    ]


def case_format_bad_spec():
    x = object
    return f"{x:d}"


def case_walrus():
    total = [y := 3, y**2, y + 1]
    while (y := y - 1) > 0:
        total.append(y)
    if (n := len(total)) > 4:
        total.append(n)
    return total, y, [last := i for i in range(3)], last


def case_delete():
    a = [1, 2, 3]
    b = {"k": 1, "l": 2}
    del a[0], b["k"]
    c = 5
    del c
    try:
        return c
    except UnboundLocalError as error:
        return a, b, str(error)


def case_delete_unbound():
    a = 1
    del a
    del a


def case_unbound_local():
    if sys.version_info < (3,):
        value = 1
    return value


def case_unbound_later():
    for i in ():
        pass
    return i


def case_conditional_expressions():
    out = []
    for a in (0, 1, "", "x", [], [0], None, {}, {1: 1}):
        out.append((a and 1, a or 2, not a, 1 if a else 2, a is None, a is not None))
    return out


def case_and_or_values():
    out = []
    for a in (0, 1):
        for b in (0, 2):
            x = a or b
            y = a and b
            z = (a and b) or (b or a)
            out.append((x, y, z, not (a or b) and not (a and b)))
    return out


def case_none_jumps():
    out = []
    for a in (None, 0, 1):
        if a is None:
            out.append("none")
        if a is not None:
            out.append("some")
        while a is not None:
            a = None
        while a is None:
            a = 1
        out.append(a)
    return out


def case_loop_conditions_at_the_end():
    n, steps = 10, 0
    while n > 0:
        n -= 3
        steps += 1
        if not n % 2 and steps > 5:
            break
    while not n:
        n = 1
    x = None
    while x is None:
        x = steps
    y = 3
    while y is not None:
        y = None if y == 0 else y - 1
    return n, steps, x, y


def case_index_error():
    return [1, 2][5]


def case_key_error():
    return {}["missing"]


def case_type_error():
    return 1 + "a"


def case_unsubscriptable():
    three = 3
    return three[0]


def case_item_assignment_error():
    (1, 2)[0] = 3


def case_item_deletion_error():
    del (1, 2)[0]


def case_class_subscript():
    return list[int], dict[str, list[int]], type[int], tuple[int, ...]


def case_class_subscript_error():
    class A:
        pass

    return A[int]


def case_star_of_non_iterable():
    return [*3]


def case_double_star_of_non_mapping():
    return {**3}


def case_assert():
    assert 1 == 1, "fine"
    assert [] == [0], f"message {1 + 1}"


def case_assert_plain():
    assert not 1


def case_big_ints_and_floats():
    n = 2**200
    return (
        n,
        n // 3,
        n % 7,
        -n >> 10,
        float(n),
        1e308 * 10,
        -0.0,
        float("nan") != float("nan"),
        7 // -2,
        -7 % 3,
        7.5 // 2,
    )


def case_division_by_zero():
    return 1 // 0


def case_bytes_and_complex():
    return (
        b"ab" + b"c",
        b"abc"[1],
        bytearray(b"xy") * 2,
        3 + 4j,
        abs(3 + 4j),
        (1j) ** 2,
        complex(1, 2).conjugate(),
    )


def case_extended_arguments():
    # More than 255 constants and names: EXTENDED_ARG.
    namespace = {}
    exec(
        "\n".join(f"v{i} = {i}.5" for i in range(300))
        + "\nx = ["
        + ",".join(f"v{i}" for i in range(300))
        + "]",
        namespace,
    )
    return sum(namespace["x"]), namespace["v299"]


def case_ellipsis_and_slices_as_keys():
    class Grid:
        def __getitem__(self, key):
            return key

    g = Grid()
    return g[...], g[1:2, ::3], g[:], g[1, ...], g[None, -1]


def case_set_operations():
    a, b = {1, 2, 3}, {2, 3, 4}
    return (
        a | b,
        a & b,
        a - b,
        a ^ b,
        a < b,
        a <= a,
        2 in a,
        frozenset(a) == a,
        len(a),
        sorted({x % 2 for x in a}),
    )


def case_dict_operations():
    d = {"a": 1}
    d.update(b=2)
    d |= {"c": 3}
    e = d | {"a": 0}
    d.setdefault("z", []).append(1)
    return (
        d,
        e,
        list(d),
        list(d.items()),
        d.pop("z"),
        d.get("q"),
        "a" in d,
        d.keys() & {"a"},
        dict.fromkeys("ab", 0),
        len(d),
    )


def case_chained_comparison_short_circuit():
    calls = []

    def note(x):
        calls.append(x)
        return x

    return note(1) < note(0) < note(5), note(1) < note(2) < note(3), calls


def case_string_methods():
    s = "Hello, World"
    return (
        s.split(", "),
        s.upper(),
        s.replace("l", "L"),
        s.find("W"),
        "-".join(c for c in s if c.isalpha()),
        s.encode(),
        s * 2,
    )


def case_augmented_targets():
    class Box:
        pass

    b = Box()
    b.x = 1
    b.x += 2
    d = {"k": [1]}
    d["k"] += [2]
    l = [1, 2, 3]
    l[-1] *= 5
    i = iter([0, 1])
    l[next(i)] += 10
    return b.x, d, l, list(i)


def case_global_builtins():
    return len("abc"), max(3, 4), isinstance(3, int), sys.maxsize > 0, __name__


def case_is_and_identity():
    a = []
    b = a
    return a is b, a is not [], (a is b) is True, None is None

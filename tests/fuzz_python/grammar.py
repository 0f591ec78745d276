"""Random programs of Python: containers of containers and of themselves, classes, generators,
closures, exceptions, `with`, `match`, augmented assignment, aliases between what lies outside and
locals, with operations on a tensor between.

In: a seed. Out: the text of a module, but for its `PRELUDE`, with `world(k)`, which makes the arguments, and `program(x, ...)`.
The same seed gives the same text. Names say what a variable most often holds: an expression of one
kind is drawn where a template asks for it, `{L}` for a list. What fails, fails natively too.
"""

from __future__ import annotations

import random
import re

from tests.fuzz_python.classes import classes

KINDS = "ISLDTEQOFGXA"
"""int, str, list, dict, tuple, set, deque, object, function, iterator, tensor, any"""

ATOMS = {
    "I": ["0", "1", "2", "3", "-1", "True", "x.shape[0]"],
    "S": ["'a'", "'b'", "'v'", "''"],
    "L": ["[]", "[1, 2, 3]", "[[], []]"],
    "D": ["{}", "{'a': 1}", "{1: [2]}"],
    "T": ["()", "(1, 2)", "([],)"],
    "E": ["set()", "{1, 2}", "frozenset({3})"],
    "Q": ["collections.deque()", "collections.deque([1, 2], 3)"],
    "O": ["A0()", "A1(1)", "B()", "Point()"],
    "F": ["len", "str", "note", "(lambda v: v)", "(lambda *v: v)"],
    "G": ["iter(())", "iter([1, 2, 3])"],
    "X": ["x", "(x + 1)", "x.sum()"],
}

EXPRESSIONS = """
I: len(<C>) ;; <I> + <I> ;; <I> - <I> ;; <L>.count(<A>) ;; <L>.index(<A>) ;; <D>.get(<K>, <I>)
I: next(<G>, <I>) ;; <O>.v ;; max(<I>, <I>) ;; int(bool(<A>)) ;; <L>[<I>] ;; <T>[0]
I: <A> in <C> ;; <A> is <A> ;; <A> == <A> ;; not <A> ;; sum(1 for _ in <C>) ;; <O>.count
I: len(LOG) ;; <I> // <I> ;; operator.index(<O>) ;; isinstance(<A>, <cls>) ;; <O> < <O>
I: len(<O>) ;; <I> if <A> else <I> ;; (<n> := <I>) ;; <A> and <I> ;; any(v for v in <C>)
I: hasattr(<O>, <S>) ;; <I> < <I> <= <I> ;; y.dim() ;; y.shape[0]
I: functools.reduce(operator.add, [<I>, <I>])
S: str(<I>) ;; <S> + <S> ;; f"{ <I> }{ <S> }" ;; '-'.join(map(str, range(<I>)))
S: type(<A>).__name__ ;; repr(<C>) ;; <S> * 2 ;; <S>.upper() ;; <F>.__name__ ;; f"{ <A> !r:>9}"
S: '%s' % (<A>,) ;; <S>[<I>:] ;; str(<O>)
L: [<A>, <A>] ;; [<A>] ;; list(<C>) ;; <L>[:] ;; <L>[<I>:] ;; <L>[::-1] ;; <L> + <L>
L: sorted(<C>, key=str) ;; [v for v in <C>] ;; [v for v in <C> if v]
L: [[v, w] for v in <C> for w in <L>] ;; <L> * 2 ;; <O>.items ;; <D>.setdefault(<K>, [])
L: [*<C>, <A>] ;; list(<G>) ;; copy.copy(<L>) ;; copy.deepcopy(<L>) ;; list(map(<F>, <L>))
L: <L>.copy() ;; [<n> := <A>, <n>] ;; list(<D>.items()) ;; <S>.split('a')
L: [lambda: v for v in <C>] ;; list(vars(<O>)) ;; <O>.twice ;; <O>[<I>:] ;; -<O>
L: sorted([<I>, <I>, <I>], reverse=True) ;; [f(1) for f in [<F>]] ;; <T> and [<A>]
L: dir(<O>)[-2:]
D: { <K>: <A> } ;; {**<D>, <K>: <A>} ;; {v: <A> for v in <H>} ;; vars(<O>) ;; <O>.__dict__
D: collections.defaultdict(list) ;; collections.OrderedDict(a=<A>) ;; dict(zip(<H>, <L>))
D: collections.Counter(<H>) ;; <D>.copy() ;; dict.fromkeys(<H>, <L>) ;; copy.copy(<D>)
D: <D>.setdefault(<K>, {}) ;; dict(<D>.items()) ;; collections.ChainMap(<D>, <D>)
D: copy.deepcopy(<D>) ;; dict(a=<A>, b=<A>) ;; <D> | <D>
T: (<A>, <A>) ;; (<A>,) ;; tuple(<C>) ;; <T> + <T> ;; <T>[::-1] ;; (*<C>, <A>) ;; <T> * 2
T: <D>.popitem() ;; (<L>, <L>) ;; divmod(<I>, 3) ;; tuple(v for v in <C>) ;; <F>(*<T>)
T: (lambda *v: v)(<A>, *<T>)
E: { <I>, <I> } ;; <E> & <E> ;; <E> - <E> ;; frozenset(<H>) ;; {v for v in <H>} ;; <E>.copy()
E: <E> ^ <E> ;; set(<D>) ;; <D>.keys() & <E> ;; <E>.union(<H>) ;; set(<H>) ;; <E> | <E>
Q: collections.deque(<C>) ;; collections.deque(<C>, 3) ;; <Q>.copy() ;; <Q> + <Q>
Q: copy.copy(<Q>)
O: A0(<A>) ;; A1(<A>) ;; A0(<A>, <A>) ;; A1(<A>, <A>, <A>) ;; Point(<I>, <L>) ;; B() ;; B(<H>)
O: <O> + <O> ;; <O> + <A> ;; copy.copy(<O>) ;; <O>.made(<A>) ;; <O>.push(<A>) ;; <O>(<A>)
O: <O>.same(<O>) ;; A0.made(<A>) ;; Failure(<A>, extra=<A>) ;; <O> or <O> ;; type(<O>)(<A>)
O: collections.UserList(<L>)
F: (lambda v: <A>) ;; (lambda v, w=<A>: w) ;; <L>.append ;; <L>.pop ;; <D>.get ;; <O>.push
F: <O>.made ;; functools.partial(<F>, <A>) ;; operator.itemgetter(<I>)
F: operator.attrgetter(<S>) ;; <D>.setdefault ;; A0 ;; Point ;; <O>.__eq__ ;; <E>.add
F: functools.lru_cache(<F>) ;; <Q>.appendleft ;; operator.methodcaller('append', <A>)
G: iter(<C>) ;; (v for v in <C>) ;; ([v, <A>] for v in <C>) ;; pairs(<C>) ;; guarded(<C>)
G: delegating(<C>) ;; zip(<C>, <L>) ;; enumerate(<C>) ;; map(<F>, <L>) ;; reversed(<L>)
G: filter(None, <L>) ;; filter(<F>, <L>) ;; itertools.chain(<L>, <G>)
G: itertools.islice(<G>, <I>) ;; itertools.accumulate(<L>, lambda a, b: b) ;; reading(<L>)
G: iter(<D>.items()) ;; itertools.zip_longest(<L>, <L>) ;; <D>.values()
G: itertools.takewhile(bool, <L>) ;; itertools.pairwise(<L>) ;; (note('turn', v) for v in <C>)
X: <X> + <I> ;; <X> * 2 ;; <X> - <X> ;; y ;; torch.stack([y, y])[0] ;; <X>.sum()
X: torch.relu(<X>)
"""
"""A line: the kind, and what gives it."""

STATEMENTS = """
6: <n> = <A>
2: <n> = <m> = <A>
2: <n>, *<m> = <C>
2: <n>, <m> = <m>, <n>
1: (<n>, <m>), <p> = <T>, <A>
3: y = y + <I>
2: y = <X>
1: y = y * y.sum()
1: y.add_(1)
2: <L>.append(y)
3: <L>.append(<A>)
2: <L>.extend(<C>)
1: <L>.extend(<G>)
1: <L>.extend(reading(<L>))
1: <L>.insert(<I>, <A>)
2: <n> = <L>.pop()
1: <L>.remove(<A>)
1: <L>.reverse()
1: <L>.sort(key=str)
1: <L>.clear()
2: del <L>[<I>]
1: del <L>[<I>:]
2: <L>[<I>] = <A>
2: <L>[<I>:<I>] = <C>
1: <L>[::2] = <C>
2: <n> = <L>; <n>.append(<n>)
3: <L> += <C>
1: <L> *= 2
1: <n> = <L>; <n> += <n>
2: <L>[<I>] += <I>
2: <L>[<I>] += <L>
2: <L>[<I>:<I>] += <C>
2: <L>[1:2] *= 2
3: <D>[<K>] = <A>
1: <D>.update(<D>)
1: <D>.update(<K2>=<A>)
1: <D>.update(zip(<H>, <L>))
1: <n> = <D>.pop(<K>, <A>)
1: del <D>[<K>]
2: <D>[<K>] += <I>
2: <D>[<K>] |= <D>
2: <D> |= <D>
1: <n> = <D>; <n>[<K>] = <n>
1: <E>.add(<I>)
1: <E> |= <E>
1: <E> -= <E>
1: <E> &= <E>
1: <n> = <E>; <n> |= {}
1: <Q>.appendleft(<A>)
1: <Q>.rotate(<I>)
1: <Q> += <C>
1: <Q>[<I>] += <I>
1: <Q>.extendleft(<C>)
3: <O>.v = <A>
3: <O>.v += <I>
2: <O>.items += <C>
1: <O>.items[<I>:] = <C>
2: <O>[<I>] = <A>
1: <O>[<I>] += <A>
1: del <O>[<I>]
2: <O> += <A>
1: <O> |= <A>
1: <O>.twice = <A>
1: <O>.held = <A>
1: <O>.only = <A>
1: <n> = <O>.held
1: <n> = <O>.first
1: del <O>.v
1: <O>.count += 1
1: type(<O>).count += <I>
1: A0.table = <A>
1: setattr(<O>, <S>, <A>)
1: <n> = <O>.<at>
2: <O>.push(<A>, *<C>)
1: <O>.made(<A>)
2: <O>.items.append(<O>)
2: <n> = <F>(<A>)
1: <n> = <F>(<A>, <A>)
1: <n> = <F>(*<T>, **<D>)
1: <T> += (<A>,)
1: <S> += <S>
1: <I> += <I>
2: <n> = next(<G>)
1: <n> = <G>; next(<n>); <m> = <n>.send(<A>)
1: <n> = <G>; next(<n>); <m> = <n>.throw(ValueError('thrown'))
1: <n> = guarded(<C>); next(<n>); <n>.close()
2: note(<A>)
2: note(<S>, <I>)
1: os.getpid()
1: GLOBAL.append(<A>)
2: TABLE[<K>] = <A>
1: STATE.v = <A>
1: del <n>
1: assert <A>, <S>
1: raise ValueError(<A>)
1: raise Failure(<A>) from KeyError(<I>)
1: <n> = [lambda: <v> for <v> in <C>]; <m> = [f() for f in <n>]
1: <n> = <L>; <m> = <n>; <m>.append(<I>); <n> = <n> + [<I>]
1: <n> = <D>.items(); <D>[<K>] = <A>; <m> = list(<n>)
1: <n> = iter(<L>); next(<n>, None); <L>.append(<I>); <m> = list(<n>)
1: <n> = [<L>] * 2; <n>[0].append(<I>)
1: <n> = property(lambda s: s.v)
1: <n> = <L>; <n>.sort(key=lambda v: <n>.append(1) or 0)
"""

BLOCKS = """
# 4
for <n> in <C>:
    BODY
# 2
for <n> in <G>:
    BODY
# 1
for <n> in <C>:
    BODY
else:
    BODY
# 1
for <n>, <m> in <D>.items():
    BODY
# 1
for <n> in <L>:
    if len(<L>) < 5: <L>.append(<I>)
    BODY
# 1
for <O>.v in <C>:
    BODY
# 1
for <L>[0] in <C>:
    BODY
# 4
if <A>:
    BODY
# 2
if <A>:
    BODY
elif <A>:
    BODY
else:
    BODY
# 4
try:
    BODY
except Exception as error:
    note(type(error).__name__, str(error))
    BODY
# 2
try:
    BODY
except (KeyError, IndexError) as error:
    <n> = error
    BODY
finally:
    BODY
# 1
try:
    BODY
except ValueError:
    raise KeyError(<A>)
except Exception as error:
    raise Failure(<A>) from error
# 1
try:
    BODY
except Exception as error:
    <n> = error
    BODY
else:
    BODY
finally:
    note('finally')
# 1
try:
    raise Failure(<A>)
except Failure as error:
    <n> = error
    <L>.append(error)
    BODY
# 1
try:
    BODY
except* ValueError as group:
    <n> = group.exceptions
# 2
with <O> as <n>:
    BODY
# 1
with managed(<A>) as <n>, managed(<L>) as <m>:
    BODY
# 1
with contextlib.suppress(Exception):
    BODY
# 1
with contextlib.ExitStack() as <n>:
    <n>.callback(note, <A>)
    <m> = <n>.enter_context(managed(<A>))
    BODY
# 2
match <A>:
    case [<v>, *<w>]:
        <n> = <w>
    case {'a': <v>, **<w>}:
        <n> = <w>
        BODY
    case Point(a=<v>):
        <n> = <v>
    case int() | str() as <v> if <A>:
        BODY
    case _:
        BODY
# 2
def <f>(v, *args, w=<A>):
    BODY
    return <A>
# 2
def <f>(v=0, *args):
    nonlocal <n>
    <n> = <A>
    BODY
    return <n>
# 2
def <f>(v=0):
    BODY
    yield v
    BODY
    yield <A>
# 1
def <f>(v=0):
    try:
        yield <A>
        yield v
    finally:
        BODY
# 1
def <f>(v=0, *rest):
    BODY
    return <f>(*rest) if rest else v
# 1
class <k>(<base>):
    held = <A>
    tag = <S>
    def method(self, v=0):
        BODY
        return [self, v, __class__]
# 1
<n> = 0
while <n> < 3:
    <n> += 1
    GLOBAL.append(<n>)
"""
"""After each weight, a statement with statements in it: `BODY`."""

BODY_NAMES = ("u", "v", "w")
NAMES = tuple(f"n{i}" for i in range(6))
ARGUMENTS = {"x": "X", "a": "L", "b": "D", "c": "E", "d": "Q", "o": "O", "p": "O", "q": "A"}
OUTSIDE = {"GLOBAL": "L", "TABLE": "D", "STATE": "O"}
KEYS = ("'a'", "'b'", "1", "2")
ATTRIBUTES = ("v", "items", "count", "held", "first", "twice", "only", "table", "zzz", "a")
CLASSES = ("A0", "A1", "B", "int", "(list, dict)", "Point")
BASES = ("", "A0", "A1", "list", "dict", "Exception", "B")
DEEPEST = 2
"""Of blocks in blocks, of expressions in expressions."""


def _weighted(text: str, entry: str) -> tuple[list[int], list[str]]:
    rows = re.findall(entry, text, re.MULTILINE | re.DOTALL)
    return [int(weight) for weight, _ in rows], [template for _, template in rows]


def _productions(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.strip().splitlines():
        kind, _, rest = line.partition(": ")
        found.setdefault(kind, []).extend(rest.split(" ;; "))
    return found


SIMPLE = _weighted(STATEMENTS, r"^(\d+): ([^\n]+)$")
COMPOUND = _weighted(BLOCKS, r"^# (\d+)\n(.*?)(?=^# |\Z)")
PRODUCTIONS = _productions(EXPRESSIONS)
HOLE = re.compile(r"<(\w+)>")
TARGET = re.compile(r"^(del |for )?<([A-Z])>")


class Writer:
    """Draws the lines of one function, and of those in it."""

    def __init__(self, choices: random.Random, names: dict[str, str], own: tuple[str, ...]) -> None:
        self.choices = choices
        self.names = names  # what each variable holds, most likely
        self.own = own  # those that this function may assign
        self.functions = 0

    # ---- expressions -----------------------------------------------------------------------------
    def expression(self, kind: str, depth: int = 0) -> str:
        """Text of an expression that likely gives that kind."""
        choose = self.choices
        if kind == "A":
            kind = choose.choice("ISLLDDTEQOOFGX")
        known = self.variables(kind)
        if known and choose.random() < (0.45 if depth == 0 else 0.65):
            return choose.choice(known)
        if depth >= DEEPEST or choose.random() < 0.3:
            return choose.choice(ATOMS.get(kind) or known or ["None"])
        text = self.filled(choose.choice(PRODUCTIONS[kind]), depth + 1)
        return f"({text})" if depth else text

    def variables(self, kind: str) -> list[str]:
        """Those that likely hold the kind; now and then any others."""
        held = {kind, "A"} if self.choices.random() < 0.1 else {kind}
        return [name for name, holds in self.names.items() if holds in held]

    def filled(self, template: str, depth: int = 0) -> str:
        """The template with its holes filled; a name in lower case is one name throughout."""
        drawn: dict[str, str] = {}
        return HOLE.sub(lambda hole: self.hole(hole[1], depth, drawn), template)

    def hole(self, key: str, depth: int, drawn: dict[str, str]) -> str:
        if key[0].islower():
            if key not in drawn:
                drawn[key] = self.name(key, set(drawn.values()))
            return drawn[key]
        choose = self.choices
        if key == "C":
            return self.expression(choose.choice("LLLDTEQOSG"), depth)
        if key == "K":
            return choose.choice([*KEYS, self.expression(choose.choice("IST"), depth)])
        if key == "K2":
            return choose.choice("abc")
        if key == "H":
            return choose.choice([f"[{self.expression('I', depth)}]", "'ab'", "range(3)", "c"])
        return self.expression(key, depth)

    def name(self, key: str, taken: set[str]) -> str:
        choose = self.choices
        if key == "at":
            return choose.choice(ATTRIBUTES)
        if key == "cls":
            return choose.choice(CLASSES)
        if key == "base":
            return choose.choice(BASES)
        if key in ("f", "k"):
            self.functions += 1
            return f"{key}{len(self.own[0])}{self.functions}"
        if key in ("v", "w"):
            return key
        return choose.choice([name for name in self.own if name not in taken])

    # ---- statements ------------------------------------------------------------------------------
    def block(self, count: int, depth: int) -> list[str]:
        lines = [line for _ in range(count) for line in self.statement(depth)]
        return lines or ["pass"]

    def statement(self, depth: int) -> list[str]:
        choose = self.choices
        compound = depth < DEEPEST and choose.random() < 0.25
        weights, templates = COMPOUND if compound else SIMPLE
        template = choose.choices(templates, weights)[0]
        lines = self.compound(template, depth) if compound else [self.simple(template)]
        if choose.random() < 0.5:
            return ["try:", *indented(lines), "except Exception as error:",
                    "    note(type(error).__name__, str(error))"]  # fmt: skip
        return lines

    def simple(self, template: str) -> str:
        template = TARGET.sub(self.target, template)
        given = re.fullmatch(r"<n> = <([A-Z])>", template)
        if given is not None:
            kind = self.choices.choice("ISLLDDTEQOOFGX") if given[1] == "A" else given[1]
            target = self.name("n", set())
            text = f"{target} = {self.expression(kind)}"
            self.names[target] = kind
            return text
        return self.filled(template)

    def target(self, hole: re.Match[str]) -> str:
        """What is written to: something that has a name."""
        kind = hole[2]
        known = self.variables(kind)
        more = {
            "L": ["o.items", "GLOBAL", "b['a']"],
            "D": ["TABLE", "vars(o)"],
            "O": ["STATE", "a[0]"],
        }
        return (hole[1] or "") + self.choices.choice([*known, *known, *more.get(kind, ()), "q"])

    def compound(self, template: str, depth: int) -> list[str]:
        drawn: dict[str, str] = {}
        lines: list[str] = []
        writer = self
        head, *rest = template.splitlines()
        if head.startswith(("def ", "class ")):
            writer = self.function()
        for line in (head, *rest):
            text = line.lstrip()
            margin = line[: len(line) - len(text)]
            if text == "BODY":
                inside = writer.block(self.choices.randint(1, 3), depth + 1)
                lines += [margin + part for part in inside]
                continue
            by = self if line is head or "<n>" in text else writer
            lines.append(margin + HOLE.sub(lambda h: by.hole(h[1], 1, drawn), text))
            if line is head and writer is not self:
                margin = "    " + " = ".join(writer.own) + " = None"
                lines += [margin] if head.startswith("def ") else []
        self.names.update(
            {drawn[key]: kind for key, kind in (("f", "F"), ("n", "A")) if key in drawn}
        )
        return lines

    def function(self) -> Writer:
        """The writer of a function in this one, which may read its names."""
        own = tuple(f"{name}{len(self.own)}" for name in BODY_NAMES)
        return Writer(self.choices, {**self.names, "v": "A"}, own)


def indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


WORLD = """
def world(k):
    global GLOBAL, TABLE, STATE
    x = torch.arange(3.0) + k
    inner = [k, 2]
    a, b, o = [], {}, None
    a = %(L)s
    b = {'a': inner, 1: a, 'b': k}
    c = %(E)s
    d = collections.deque([inner, k], 5)
    o = %(O)s
    p = %(P)s
    q = %(A)s
    GLOBAL = [inner, a]
    TABLE = {'a': b, 'b': []}
    STATE = %(P)s
    return [x, a, b, c, d, o, p, q]
"""
"""What lies outside; `k` differs from call to call."""
WORLDS = {
    "L": ["[inner, k]", "[1, 2, inner, inner]", "[[], {}, k]", "[k] * 3", "[(1, inner), 'a']"],
    "E": ["{1, 2}", "{k}", "(inner, 1)", "set()", "frozenset({1})", "(1, 2, k)"],
    "O": ["A0(inner)", "A1(k)", "A0(k, a, inner)", "A1(a, a)", "B()", "A0(1, 2, k)"],
    "P": ["A0(a)", "Point(k, inner)", "A1(k, o)", "o", "B()", "Failure(inner)", "A1(o, b)"],
    "A": ["a", "inner", "iter(a)", "pairs(a)", "k", "'text'", "None", "len", "o", "zip(a, inner)",
          "A0", "(a, inner)", "b.items()", "lambda v: [v, inner]", "guarded(a)", "a.append"],
}  # fmt: skip


def program_of(seed: int) -> str:
    """The module of that number."""
    attempt = 0
    while True:
        text = _program(random.Random(f"{seed} {attempt}"))
        try:
            compile(text, "<program>", "exec", dont_inherit=True)
        except SyntaxError:  # a name that is both of a comprehension and assigned, for one
            attempt += 1
            continue
        return text


def _program(choices: random.Random) -> str:
    names = {**ARGUMENTS, **OUTSIDE, "y": "X"}
    writer = Writer(choices, names, NAMES)
    body = writer.block(choices.randint(3, 9), 0)
    returned = choices.sample([*NAMES, "a", "b", "o", "q"], 4)
    lines = [
        f"def program({', '.join(ARGUMENTS)}):",
        *indented([" = ".join(NAMES) + " = None", "y = x + 1", *body]),
        f"    return y * 2, {', '.join(returned)}",
    ]
    drawn = {key: choices.choice(texts) for key, texts in WORLDS.items()}
    parts = [classes(choices), WORLD % drawn, *lines]
    return "\n".join(parts) + "\n"

"""The simplification rules, one line each, for all integers on which both sides are defined.

`ALWAYS` needs constants only and is applied when an expression is built; `UNDER_FACTS` puts its
conditions to the facts and is applied by `facts.simplify`. tests/symbolic/test_rules.py proves
each line by brute force and by z3. Sums and products are split by the normal form itself
(`expr.py`), so no rule says that addition commutes.
"""

from __future__ import annotations

from anyshape.rewrite import RuleTable, parse_rules

ALWAYS = RuleTable(
    parse_rules(
        """
        div_of_div:     (x // y + c1) // c2 => (x + y * c1) // (y * c2) if c2 > 0
        div_of_mod:     (x % c1) // c2 => (x // c2) % (c1 // c2) if c1 > 0 < c2 and c1 % c2 == 0
        div_of_half:    (x + (-1 * (x // 2) + y)) // z => ((x + 1) // 2 + y) // z
        halves: (x // c1 + (-1 * (x // c2) + y)) // z => ((x + c1) // c2 + y) // z if c2 == 2 * c1
        mod_of_mod:     (c3 * (x % c1) + y) % c2 => (c3 * x + y) % c2 if c2 > 0 == c3 * c1 % c2
        mod_of_mod_by:  (x % y) % y => x % y
        min_absorbs:    min(x, max(x, y)) => x
        max_absorbs:    max(x, min(x, y)) => x
        """
    )
)

UNDER_FACTS = RuleTable(
    parse_rules(
        """
        small_div:        x // y => 0                      if 0 <= x < y
        small_mod:        x % y => x                       if 0 <= x < y
        minus_one_div:    x // y => -1                     if y > 0 and 0 - y <= x < 0
        div_of_div_by:    (x // y) // z => x // (y * z)    if z > 0
        min_left:         min(x, y) => x                   if x <= y
        min_right:        min(x, y) => y                   if y <= x
        max_left:         max(x, y) => x                   if x >= y
        max_right:        max(x, y) => y                   if y >= x
        min_of_max:       min(max(x, y), z) => max(min(x, z), y)  if y <= z
        broadcast_ones:   broadcast(x, y) => y             if x == 1
        broadcast_one:    broadcast(x, y) => x             if y == 1
        broadcast_same:   broadcast(x, y) => x             if x == y
        broadcast_left:   broadcast(x, y) => x             if x != 1
        broadcast_right:  broadcast(x, y) => y             if y != 1
        """
    )
)

"""What Python raised while C called it: a call of C can hand back a status alone.

In: whoever is called by C, in this thread. Out: whoever has called C, once that has come back.
"""

from __future__ import annotations

RAISED: dict[int, BaseException] = {}
"""By thread; one that calls C takes it out."""

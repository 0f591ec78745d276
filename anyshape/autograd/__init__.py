"""Gradients: a captured graph becomes a forward and a backward graph.

In: the graph of capture, functional, before decomposition. ``outline`` says what requires gradients
and refuses what is not covered, with a reason; ``differentiate`` builds the joint graph from the
``vjp`` column of the rows; passes simplify it; ``partition`` cuts it in two by a minimum cut over
what to save. The driver calls them in order, ``runtime/boundary.py`` runs the halves.
"""

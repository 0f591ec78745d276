"""Capture: Python -> segments. An interpreter of CPython bytecode that owns its whole frame stack.

Eight rooms, each of which knows those below it (pyproject.toml, "each room of capture"):

    segments      the domain that records; the end of a segment
    tensors       what a program does to tensors
    sizes         numbers with symbols in them, joins of branches
    recording     the recorder of one capture
    guards        what is relied on, and how it is tested
    python        builtins, classes, the standard library             (this and below: no torch)
    interpreter   opcodes, frames, unwinding, the object protocol
    heap          values, outside objects and their mirrors, the log of writes, sources

How to use it:

    machine = python_machine(Concrete())           # or a recording Domain
    machine.run(fn, *args, **kwargs)               # raises what fn raises; Break where a domain
                                                   # wants the segment to end
    after a Break: machine.frame is the broken frame, at the beginning of its instruction; have a
    concrete domain do that one (machine.step()), then machine.resume()
    mark = machine.checkpoint(); machine.resume(); machine.rollback(mark); machine.release(mark)

Three rules. A handler returns a value, a Call or a Frame that nobody has entered, and takes its
operands off the stack only once nothing can break any more. Python-to-Python calls never recurse
natively: what needs an interpreted call in its middle is a polyfill or has a continuation. An
object is *outside* unless `heap.create` has seen it.
"""

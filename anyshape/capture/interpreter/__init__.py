"""CPython's bytecode, interpreted over an explicit stack of virtual frames. No torch.

frame.py             Frame, the state of one activation; Code, a code object decoded once
domain.py            Domain: the hooks by which one interpreter serves two domains; Interpreter:
                     what handlers and domains use of the machine; domain.py: the domain that
                     runs everything
continuations.py     what becomes of a frame's result where it is not simply pushed
generators.py        suspended frames; unwinding.py: exceptions; binding.py: arguments
attributes.py protocol.py   the object protocol, CPython slot by slot; operators.py: its tables
polyfills.py and *_polyfills.py   algorithms with interpreted calls in their middle, as Python that
                     is itself interpreted; intrinsic_names.py: the names that only they may call
*_opcodes.py         handlers of opcodes; opcode_results.py: how they hand over results;
                     opcodes.py: the table, one row for each opcode
handover.py          frames that CPython goes on with from the middle
machine.py           Machine: the loop, calls, class lookups, checkpoints. What builtins mean it is
                     handed as a Language
"""

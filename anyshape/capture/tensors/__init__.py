"""What a program does to tensors, as nodes.

tensor_ops.py        operators, attributes, methods; tensor_methods.py: calls whose parameters are
                     not their row's own; casts.py; torchmap.py: which row a torch callable is
indexing.py          `x[...]` taken apart; aliases.py: copy or view
refused_by_eager.py  what eager refuses
outs.py legacy.py    `out=`; constructors that take a size or data
backward.py          `backward()`, `.grad`; reached.py: what it goes through; checkpoints.py;
                     autograd_functions.py: functions with a backward of their own;
                     own_backwards.py, tensor_hooks.py: such a backward, and hooks, where autograd
                     takes the gradients; later_reads.py: what these may read
meta.py fake_impl.py functional.py   operators without a row
modules.py torch_polyfills.py scans.py snapshots.py copies.py
"""

"""One capture: its graph, facts, guards, inputs and modes.

recorder.py          Recorder: all of it, with marks to go back to; entry_sizes.py makes the
                     sizes of an argument, which the recorder then holds: the two define each
                     other
domain.py            RecordingDomain: what the rooms above may ask of the domain that records
functions.py         calls of `autograd.Function` whose gradients are to come
forks.py             branches on sizes that were joined; choices.py: tensors that data chooses
decimal_contexts.py  contexts of `decimal` that lie outside, and the thread's
autocast.py gradients.py integers.py scalar_contents.py   what becomes of a node's arguments
                     and results
"""

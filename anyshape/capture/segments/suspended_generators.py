"""Generators that live longer than a segment: what capture sees of one, and how it is left behind.

In: a real generator of an earlier segment, at a source. Out: a twin whose frame holds what the
trace sees of the real frame's locals and stack, so that it can be advanced like any other; at the
end of the segment the real one is brought to where its twin is (`Rebuilder.generators`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.sources import Source
from anyshape.capture.heap.values import LOST, NULL
from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.interpreter.liveness import is_live, live_at
from anyshape.capture.recording.domain import RecordingDomain

STATE = ("running", "started", "finished")


def see_generator(domain: RecordingDomain, source: Source, value: Generator) -> Generator:
    """The twin of a real generator; its position in the code is relied on."""
    recorder, sources = domain.recorder, domain.recorder.sources
    recorder.guard(source, "type", Generator)
    known = domain.twin(value)
    if known is not None:
        first = sources.of(known)
        if first is not source:
            recorder.guard(source, "same", first)
        return known
    if value.native is not None:
        raise broken("unknown-call", "a generator that CPython goes on with")
    for name in STATE:
        recorder.guard(sources.child(source, "attr", name), "equals", getattr(value, name))
    real = value.frame
    frame_source = sources.child(source, "attr", "frame")
    recorder.guard(sources.child(frame_source, "attr", "code"), "is", real.code)
    names = (value.__name__, value.__qualname__)  # where they are read, they are relied on
    twin = Generator.restored(domain.machine, real.code, names)
    twin.running, twin.started, twin.finished = value.running, value.started, value.finished
    twin.touched = value.running
    sources.remember(twin, source)
    domain.keep_twin(value, twin)
    if not value.finished and not value.running:  # the frame of a running one is on the stack
        twin.frame = _see_frame(domain, frame_source, real)
    return twin


def _see_frame(domain: RecordingDomain, frame_source: Source, real: Frame) -> Frame:
    recorder, child = domain.recorder, domain.recorder.sources.child
    if real.is_watched():
        raise broken("unknown-call", "a generator whose frame the program holds")
    recorder.guard(child(frame_source, "attr", "index"), "equals", real.index)
    stack = child(frame_source, "attr", "stack")
    recorder.guard(stack, "length", len(real.stack))
    live = live_at(real)
    locals_ = list(_seen(domain, child(frame_source, "attr", "locals"), real.locals, live))
    frame = Frame(real.code, real.globals, real.builtins, locals_, real.names)
    frame.stack = list(_seen(domain, stack, real.stack, -1))
    frame.index = real.index
    if real.locals_dict is not None:
        seen = domain.see(child(frame_source, "attr", "locals_dict"), real.locals_dict)
        frame.locals_dict = seen
    else:
        recorder.guard(child(frame_source, "attr", "locals_dict"), "is", None)
    frame.handled = domain.see(child(frame_source, "attr", "handled"), real.handled)
    return frame


def _seen(
    domain: RecordingDomain, frame_source: Source, values: list[Any], live: int
) -> Iterator[Any]:
    for index, value in enumerate(values):
        source = domain.recorder.sources.child(frame_source, "item", index)
        if not is_live(live, index, value):
            yield LOST
        elif value is NULL:
            domain.recorder.guard(source, "is", NULL)
            yield NULL
        else:
            yield domain.see(source, value)

"""The whole domain that records, and what a capture ends with.

symbolic_domain.py   the domain; reading_domain.py, outside_reads.py, suspended_generators.py: the
                     half of it that reads outside objects; number_attributes.py: of its numbers
callables.py c_calls.py   calls of what is neither a row nor interpreted; owned_objects.py: objects
                     of C that capture makes and owns; scripted.py: functions of TorchScript
refused_operands.py   what C says of an operator that two values do not have
segment_end.py       what a segment returns or leaves alive, rebuilt as Python objects;
                     makers.py: one function a kind of object. They call each other, as objects
                     hold objects
assumptions.py       what a capture takes for granted, and what shows that it does not hold
inspected.py         what `inspect` says of the program's functions
cleared_gradients.py  gradients that are set to None before a segment computes
declared_results.py  declared sizes of results, proved
"""

"""Objects as one capture sees them. The lowest room: it knows no interpreter, no torch.

values.py            what may lie on a virtual stack besides plain objects: NULL, the proxies
                     (SizeValue, ScalarValue, TensorValue); Call, Break, ProxyLeak, InterpreterBug
breaks.py            the catalogue of graph breaks
shadow_heap.py       mirrors of outside objects (mirrors.py), the log of effects, created objects
                     and the undo journal (journal.py, undo.py), writes to what nobody has read
                     (unread_writes.py), who is told of each read (watched_reads.py)
class_attributes.py  attributes of outside classes that are written
quiet_classes.py     what `type` keeps of a class; quiet_reads.py: of objects of any class
sources.py           where a value came from
native_calls.py      what C code reads and writes of outside objects; purity.py: its tables
iterators.py         forking native iterators; allocation_age.py: what came to be in this capture
twins.py             objects of C whose work objects of Python do
observer.py          what the heap asks of whoever interprets
"""

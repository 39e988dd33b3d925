"""The last import of a process that others are forked from: it freezes the garbage collector.

Else each fork would traverse all objects at its end, and so copy them: a quarter of a second.
"""

import gc

gc.collect()
gc.freeze()

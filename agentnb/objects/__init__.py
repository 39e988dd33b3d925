"""Objects of a person's that an agent is given by name: what it is told of them, and what it reads.

An agent gets names, not copies and not prints. Everything here only reads; what a foreign object
raises is passed over. Optional libraries are used where an object of theirs is there, and are never
imported for a look.
"""

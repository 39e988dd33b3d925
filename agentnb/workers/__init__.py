"""Workers: processes in which agents' code runs, with copies of what the person gave.

The person's process starts them, asks them, and reads what they answer; it never runs, imports or
unpickles anything that came from one. `pool.Workers` is what the rest of the package uses.
"""

"""A local stand-in for the Treadstone control plane, run as `python -m prep.localserver`.

It speaks the recorded API (`tests/contract`), behaves as a short profile string says, and writes down the
truth about every sandbox. It imports nothing of the load test itself, so that what the load test measures
can be held against a witness that shares no code with it.
"""

"""Everything in profd that needs no screen.

It records a run, stores it, and says what it means.
"""

VERSION = "0.2.0"

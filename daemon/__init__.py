"""Everything of profd that needs no screen.

It records a run, keeps it, and says what it means.
"""

VERSION = "0.1.0"

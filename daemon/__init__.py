"""Everything of profd that needs no screen: recording a run, keeping it, and saying what it means."""

VERSION = "0.1.0"

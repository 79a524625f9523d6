"""The always-on supervisor of a host: finds training processes, has each job recorded, and keeps what comes of it.

    census -> rules -> jobs -> supervisor -> sessions (processes of their own) -> run files
                                   |-> reporting (a child of low priority) -> reports
                                   `-> retention

Nothing is recorded in this process: whatever becomes of it, recordings go on, and the next one takes them over by the
``register``. Knows nothing of how runs are analyzed or shown.
"""

"""The always-on supervisor of a host.

It finds training processes, has each job recorded, and keeps reports and runs.

    processes -> jobs -> supervisor -> sessions (processes of their own) -> run files
                             |-> reports (a child of low priority)
                             `-> storage (registry and retention)

Nothing is recorded in this process: recordings go on whatever becomes of it, and the next
supervisor takes them over by the registry.
"""

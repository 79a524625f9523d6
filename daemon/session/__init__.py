"""The session: the process that records a run, from its start to its end.

There are three processes. The launcher (``launch``) is the script's parent and does nothing that
could fail; the session records; the dashboard shows. Each can be killed without the others or the
script noticing.
"""

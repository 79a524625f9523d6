"""The session: the process that records a run, from its start to its end.

Three processes: the launcher (``launch``) is the script's parent and does nothing that could fail;
the session records; the dashboard shows. Each can be killed without the others and the script
noticing.
"""

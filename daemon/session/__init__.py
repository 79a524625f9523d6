"""A run from its start to its end: launching or finding the target, following its processes, recording, ending.

Three processes: the launcher (``launch``) is the script's parent and does nothing that could fail; the session
(``session``) records; the dashboard shows. Each can be killed without the others and the script noticing.
"""

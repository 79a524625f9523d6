"""The feed's thread: reads what is new in the run file, keeps up with the run, and answers a view with a snapshot.

``feed`` is the thread, ``survey`` what it knows of the run; beside it stand what single tabs show (``exhibits``), the
findings (``findings``), the processes (``census``) and how well the run is seen (``coverage``). Knows no screen.
"""

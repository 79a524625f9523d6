"""torch.profiler windows of a run: asked for, received, and reduced to what a table can show.

trace (a file, read) -> spans (on one line of integer time) -> nesting (who called whom) -> operators
                                                            -> gputime, steps (the window as a whole)
kineto (the daemon's side of Kineto's on-demand protocol) and arming (the environment that makes a script listen) bring
the file about. Nothing here knows of run files' tables, of sessions or of screens, and nothing imports torch.
"""

"""The run over time: phases, gauges, steps and marks by column, and where in it the person is. Knows no screen.

What is drawn of it is the matter of ``widgets.timeline``.
"""

"""The parts of the dashboard.

Each draws one thing out of a snapshot, and knows nothing of the others.
"""

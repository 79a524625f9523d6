"""The parts of the dashboard: each draws one thing out of a snapshot, and knows nothing of the others."""

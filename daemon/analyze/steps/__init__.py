"""Steps: how many a run made and how fast, by its counter or by what recurs."""

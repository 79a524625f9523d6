"""What a run looks like outside of the dashboard: text, collapsed stacks, the report. Reads what ``analyze`` returns."""

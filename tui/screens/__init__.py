"""What fills the terminal: the dashboard, the help, and the screen for a run that cannot be read."""

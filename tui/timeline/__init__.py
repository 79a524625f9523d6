"""The run over time: phases, series, steps and marks by column, and where in it the person is."""

"""What is recorded of a run, as it answers the run that is played again. Private to the core."""

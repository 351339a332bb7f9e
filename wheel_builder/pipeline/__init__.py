"""The stages in order: the run context, the steps, and the reports."""

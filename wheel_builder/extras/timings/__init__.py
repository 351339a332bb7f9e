"""What follows from users' tuning reports: better rows, and how far off the models are."""

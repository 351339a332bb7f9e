"""Tools beside a release, which no stage imports."""

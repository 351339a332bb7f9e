"""The cost of compiling and shipping our kernels: tables, and a picture of its distribution."""

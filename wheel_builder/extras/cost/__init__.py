"""What our kernels cost to compile and to ship: tables, and a picture of where it goes."""

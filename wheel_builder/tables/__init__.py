"""The tables of archs, products, tiles and calls, and the generator of the files that code reads of them."""

"""The tables of archs, products, tiles and calls, and the generator of files made from them."""

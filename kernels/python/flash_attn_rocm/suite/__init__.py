"""The fuzz cases of every kernel, their corpus, and the reference implementation that judges them."""

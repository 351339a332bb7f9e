"""What every other package uses: errors, processes, words, safe writes, stored results."""

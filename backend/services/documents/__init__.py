"""One upload in, everything there is to know of it out: pages read, then understood."""

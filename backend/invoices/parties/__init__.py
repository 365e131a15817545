"""Who sells and who buys: names, addresses and tax numbers."""

"""Bank statements: account, holder, period, balances and movements."""

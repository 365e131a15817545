"""Where facts and readings come from: the driver, torch, and machines that are only simulated."""

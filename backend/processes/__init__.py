"""Several processes for one service: HTTP workers, and the service process with the models that computes for them."""

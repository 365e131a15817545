"""The training tasks: data, model, loss, evaluation and publishing of each."""

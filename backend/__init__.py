"""FinancIA Inference: documents and text in; text, boxes, labels, entities and vectors out."""

__version__ = "0.1.0"

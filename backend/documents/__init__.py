"""Extracts the pages of uploaded files by text layer or OCR, and analyses their text."""

"""Transcription: audio is cut where nobody speaks, and the pieces of all requests share the lanes."""

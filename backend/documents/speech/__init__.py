"""Transcripts without a model: what was said when, the pages they make, subtitles, and what was not really said."""

"""Whisper's files, tokens and features, and the detector of speech: what speech models are, without running them."""

"""Transcripts as text and as JSON lines, and the files they go to. Nothing here prints."""

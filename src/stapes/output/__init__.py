"""Transcripts as text, subtitles, tables and JSON lines, and their files. Nothing here prints."""

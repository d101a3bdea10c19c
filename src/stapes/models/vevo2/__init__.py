"""Vevo2: speech and singing from text and reference voices (weights: RMSnow/Vevo2)."""

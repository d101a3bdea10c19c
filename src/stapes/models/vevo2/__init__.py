"""Vevo2: text and reference voices to speech and singing (open-mmlab/Amphion, weights RMSnow/Vevo2)."""

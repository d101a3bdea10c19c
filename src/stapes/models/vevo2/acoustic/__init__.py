"""The output side: codes and a voice's mel to a mel (flow matching), a mel to samples (vocoder)."""

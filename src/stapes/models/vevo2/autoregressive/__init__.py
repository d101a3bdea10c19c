"""The autoregressive stage: text, prosody and style in, content-style codes out."""

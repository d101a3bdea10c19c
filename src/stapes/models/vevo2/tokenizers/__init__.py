"""The input side: a recording to codes of prosody and of content and style; its pitch."""

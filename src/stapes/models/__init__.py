"""The models that stand on the decoder, one package each, and the registry that finds them."""

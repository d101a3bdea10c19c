"""The pipeline that makes the bundled model `tiny-en`: synthesis, training, export, evaluation."""

"""Many recordings by many workers: a manifest in, a file of results out, restartable at any point.

`manifest` reads what is asked for, `results` is the file of results and the job's only memory,
`team` hands tasks to workers and replaces those that die; `processes` and `cluster` (Ray) are the
two kinds of workers. Both run a `Transcriber`, which uses a model as anybody does.
"""
